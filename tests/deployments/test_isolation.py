"""What one server's own user can do in a real Redis: everything below its prefix, nothing of another's, nothing else.

Each command that the Redis has is tried, so that one which a later release adds is found as well.
"""

import os
import shutil
import subprocess

import pytest
import redis

from console import streams
from deployments.services import enrol
from tests.conftest import Valkey
from tests.waiting import until

FOREIGN = ("h:8:logs", "h:70:logs", "h:7", "fleet:now", "rq:queues", "ingest:lease", "fleet:doubt", "h:*:x", "x")

# Commands without a key that the user may call, and why each is harmless.
HARMLESS = {
    "ping", "echo", "auth", "hello", "reset", "quit", "time", "lolwut", "command", "command|count", "command|docs",
    "command|getkeys", "command|getkeysandflags", "command|help", "command|info", "command|list", "asking", "readonly",
    "readwrite",  # of the connection itself, or the same for everybody
    "client|setname", "client|setinfo", "client|id", "client|info",  # RQ and redis-py say and ask who they are
    "multi", "exec", "discard", "unwatch",  # the commands within are judged one by one
    "wait", "waitaof",  # block the connection that calls them
    "info",  # needed by RQ; tells figures of the whole, no names of keys
}  # fmt: skip
# Their keys stand behind a count or a word, where this test puts none; tried by hand below.
BY_HAND = {"xread", "xreadgroup"}


class Debians(Valkey):
    """Debian's redis-server (7.0), as a site may have it."""

    def start(self):
        config = self.folder / "valkey.conf"
        self.process = subprocess.Popen(
            ["redis-server", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, cwd=self.folder
        )
        until(lambda: self._answers())

    def _answers(self):
        try:
            return self.client(retry=None).ping()
        except redis.RedisError:
            return False


@pytest.fixture(scope="module", params=[Valkey, Debians], ids=["valkey", "redis-server"])
def server(request, tmp_path_factory):
    """A Redis with the users h7 and h8, and things of 8 and of the console in it."""
    if request.param is Debians and not shutil.which("redis-server"):
        assert not os.environ.get("CI"), "CI must have redis-server"
        pytest.skip("redis-server is not installed")
    made = request.param(tmp_path_factory.mktemp("isolation"))
    client = made.client()
    enrol.set_users(client, {f"h{pk}": streams.acl_rules(pk, f"pw{pk}") for pk in (7, 8)})
    client.xadd("h:8:logs", {"a": 1})
    client.hset("fleet:now", "8", "{}")
    client.set("x", "y")
    yield made
    made.kill()


@pytest.fixture
def own(server):
    client = redis.Redis(port=server.port, username="h7", password="pw7", retry=None)
    yield client
    client.close()


def commands(client):
    """(name, words of the shortest call, place of its first key) of every command and subcommand."""
    for name, info in client.command().items():
        found = [(sub[0].decode(), sub[1], sub[3]) for sub in info.get("subcommands") or []]
        for full, arity, first in found or [(name, info["arity"], info["first_key_pos"])]:
            words = full.replace("|", " ").split()
            yield full, words + ["1"] * max(0, abs(arity) - len(words)), first


def may(client, *words):
    return client.execute_command("ACL", "DRYRUN", "h7", *words) in ("OK", b"OK", True)


def test_no_command_at_all_takes_a_key_of_another(server):
    client, tried, taken = server.client(), 0, []
    for name, words, first in commands(client):
        if not first or name in HARMLESS:
            continue
        for key in FOREIGN:
            foreign = [*words[:first], key, *words[first + 1 :]] if len(words) > first else [*words, key]
            taken += [foreign] if may(client, *foreign) else []
        tried += 1
    assert taken == []
    assert tried > 150


def test_commands_without_a_key_are_those_that_are_known_to_be_harmless(server):
    client = server.client()
    allowed = {name for name, words, first in commands(client) if not first and may(client, *words)}
    assert allowed - HARMLESS - BY_HAND == set()
    assert {"info", "time", "client|setname", "client|info"} <= allowed, "what RQ needs"


@pytest.mark.parametrize(
    "words",
    [
        "XREAD COUNT 1 STREAMS h:8:logs 0", "XREAD STREAMS h:7:logs h:8:logs 0 0", "XREAD BLOCK 1 STREAMS fleet:now $",
        "XREADGROUP GROUP g c STREAMS h:8:logs >", "XADD h:8:logs * a 1", "XTRIM h:8:logs MAXLEN 0",
        "XRANGE h:8:logs - +", "XINFO STREAM h:8:logs", "XSETID h:8:logs 9-9", "XGROUP CREATE h:8:logs g $ MKSTREAM",
        "XAUTOCLAIM h:8:logs g c 0 0", "XDEL h:8:logs 1-1",
        "LPUSH h:8:rq:queue:jobs evil", "RPUSH h:8:rq:queue:jobs evil", "LINSERT h:8:rq:queue:jobs BEFORE a b",
        "LMOVE h:7:x h:8:rq:queue:jobs LEFT LEFT", "BLMOVE h:7:x h:8:rq:queue:jobs LEFT LEFT 1",
        "RPOPLPUSH h:7:x h:8:rq:queue:jobs", "BRPOPLPUSH h:7:x h:8:rq:queue:jobs 1", "LRANGE h:8:rq:queue:jobs 0 -1",
        "HSET h:8:rq:job:evil data x", "HGETALL h:8:rq:job:evil", "SADD h:8:rq:queues h:8:rq:queue:jobs",
        "ZADD h:8:rq:wip:jobs 1 evil", "SET h:8:orders evil", "RPUSH h:8:orders evil", "HSET h:8:acked a [1,0,false]",
        "GET h:8:x", "SET h:8:x 1", "DEL h:8:logs", "UNLINK h:8:logs", "EXPIRE h:8:logs 1", "PERSIST h:8:logs",
        "RENAME h:7:x h:8:x", "RENAME h:8:logs h:7:x", "COPY h:8:logs h:7:x", "COPY h:7:x h:8:x", "DUMP h:8:logs",
        "RESTORE h:8:x 0 x", "TYPE h:8:logs", "EXISTS h:8:logs", "OBJECT ENCODING h:8:logs", "MEMORY USAGE h:8:logs",
        "TOUCH h:8:logs", "SUNIONSTORE h:8:x h:7:x", "SUNION h:7:x h:8:x", "ZUNIONSTORE h:7:x 1 h:8:x",
        "BITOP NOT h:8:x h:7:x",
        "GEOSEARCHSTORE h:8:x h:7:x FROMLONLAT 0 0 BYRADIUS 1 m", "PFMERGE h:7:x h:8:x", "PFMERGE h:8:x",
        "PFADD h:7:x 1",
        "SORT h:8:x", "SORT h:7:x BY h:8:*",
        "SORT_RO h:7:x GET h:8:*", "MSET h:7:x 1 h:8:x 1", "MGET h:7:x h:8:x",
        "WATCH h:8:logs",
        "HSET fleet:now 8 {}", "SET ingest:lease me", "DEL fleet:doubt", "LPUSH rq:queue:default evil",
        "SADD rq:queues x",
        "PUBLISH h:8:beat {}", "PUBLISH live:job:1 x", "PUBLISH live:fleet x", "SPUBLISH h:8:beat x",
        "SUBSCRIBE live:fleet", "SUBSCRIBE h:7:rq:pubsub:x", "PSUBSCRIBE h:7:*", "SUBSCRIBE live:job:1",
        "SUBSCRIBE h:8:beat", "PSUBSCRIBE h:*:beat", "PSUBSCRIBE *",
        "PSUBSCRIBE live:*", "SSUBSCRIBE h:8:beat", "PUBSUB CHANNELS *", "PUBSUB NUMSUB live:fleet", "PUBSUB NUMPAT",
        "KEYS *", "KEYS h:7:*", "SCAN 0", "RANDOMKEY", "DBSIZE", "SELECT 1", "MOVE h:7:x 1", "SWAPDB 0 1",
        "MOVE h:8:logs 1",
        "CONFIG GET *", "CONFIG SET maxmemory 1", "CONFIG REWRITE", "CONFIG RESETSTAT",
        "FLUSHALL", "FLUSHDB", "SHUTDOWN NOSAVE",
        "SAVE", "BGSAVE", "BGREWRITEAOF", "LASTSAVE", "DEBUG SLEEP 1", "DEBUG OBJECT h:7:x", "MONITOR", "SYNC",
        "PSYNC ? -1", "REPLICAOF 127.0.0.1 1", "SLAVEOF 127.0.0.1 1", "REPLCONF listening-port 1", "FAILOVER",
        "CLUSTER INFO", "CLUSTER SLOTS", "MODULE LOAD /tmp/x.so", "MODULE LIST", "MIGRATE 127.0.0.1 1 h:7:x 0 1",
        "EVAL return(1) 0", "EVALSHA 0000000000000000000000000000000000000000 0", "EVAL_RO return(1) 0",
        "SCRIPT LOAD return(1)", "SCRIPT FLUSH", "SCRIPT KILL", "FUNCTION LIST", "FUNCTION FLUSH",
        "FCALL f 0", "FCALL_RO f 0",
        "ACL LIST", "ACL USERS", "ACL WHOAMI", "ACL GETUSER h8", "ACL SETUSER h7 +@all",
        "ACL SETUSER evil on nopass +@all",
        "ACL DELUSER h8", "ACL LOG", "ACL SAVE", "ACL LOAD", "ACL CAT", "ACL GENPASS",
        "CLIENT LIST", "CLIENT KILL USER h8", "CLIENT KILL ID 1", "CLIENT PAUSE 1000",
        "CLIENT UNPAUSE", "CLIENT UNBLOCK 1",
        "CLIENT NO-EVICT on", "CLIENT TRACKING on", "CLIENT TRACKING on BCAST PREFIX h:8:", "CLIENT CACHING yes",
        "CLIENT GETREDIR", "CLIENT REPLY off", "SLOWLOG GET", "SLOWLOG RESET", "LATENCY DOCTOR", "LATENCY RESET",
        "MEMORY DOCTOR", "MEMORY PURGE", "MEMORY STATS",
    ],
)  # fmt: skip
def test_each_of_these_is_refused_and_changes_nothing(server, own, words):
    client = server.client()
    before = (client.dbsize(), client.xlen("h:8:logs"), client.get("x"), client.hgetall("fleet:now"))
    connection = own.connection_pool.get_connection()
    connection.send_command(*words.split())
    with pytest.raises(redis.ResponseError) as refusal:
        connection.read_response()
    connection.disconnect()
    words = str(refusal.value)  # DEBUG and MODULE are off altogether, some commands are of another release
    assert "permission" in words or "unknown command" in words or "command not allowed" in words
    assert (client.dbsize(), client.xlen("h:8:logs"), client.get("x"), client.hgetall("fleet:now")) == before


def test_within_a_transaction_it_is_no_different(server, own):
    pipe = own.pipeline(transaction=True)
    pipe.set("h:7:x", 1)
    pipe.xadd("h:8:logs", {"a": 2})
    with pytest.raises(redis.RedisError):
        pipe.execute()
    assert server.client().xlen("h:8:logs") == 1
    assert not server.client().exists("h:7:x")


def test_what_it_needs_it_may(server, own):
    own.xadd("h:7:telemetry", {"d": "{}"}, maxlen=10)
    own.xadd("h:7:logs", {"a": "x"})
    own.hset("h:7:acked", "a", "[1,0,false]")
    assert own.hmget("h:7:acked", ["a"])
    own.rpush("h:7:rq:queue:jobs", "a")
    assert own.blmove("h:7:rq:queue:jobs", "h:7:rq:queue:jobs:intermediate", 1, "RIGHT", "LEFT") == b"a"
    own.publish("h:7:beat", "{}")
    assert own.info("server")["redis_version"]
    own.client_setname("worker")
    assert own.time() and own.lrange("h:7:orders", 0, -1) == []
    for name in ("telemetry", "logs", "acked", "rq:queue:jobs:intermediate"):
        own.delete(f"h:7:{name}")


def test_another_ones_password_and_none_are_refused(server):
    for user, password in (("h8", "pw7"), ("h7", "pw8"), ("default", ""), (None, None), ("h7", "")):
        with pytest.raises(redis.RedisError):
            redis.Redis(port=server.port, username=user, password=password, retry=None).get("h:7:x")


def test_users_are_made_in_a_redis_that_knows_fewer_commands(server, monkeypatch):
    client = server.client()
    monkeypatch.setattr(streams, "NEWER_RULES", ["+client|setinfo", "-of-a-command-of-tomorrow"])
    enrol.set_users(client, {"h9": streams.acl_rules(9, "pw9")})
    assert redis.Redis(port=server.port, username="h9", password="pw9", retry=None).set("h:9:x", 1)
    client.acl_deluser("h9")
    client.delete("h:9:x")
    with pytest.raises(redis.ResponseError):
        enrol.set_users(client, {"h9": ["on", "+no-such-command-at-all"]})
