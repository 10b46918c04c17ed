"""Lines are sent once each and in order, whatever is lost, doubled or late on the way."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.message import Message, made, newest, newest_of_each
from console.outbox import KEPT, LINES_KEPT, Latest, Numbered

ONE, TWO = "a42-1-0000000a", "a42-2-0000000b"
ACTIONS = st.lists(st.sampled_from(["write", "lose", "again", "head", "wait", "wait", "old"]), max_size=200)


def log(attempt, first, n):
    text = "\n".join(f"{line}\to\tline {line}" for line in range(first, first + n))
    return made("job:42", "log", {"attempt": attempt, "first": first, "n": n, "text": text}, first + n - 1)


class Source:
    """An attempt's stored lines; `after` is what the database would answer."""

    def __init__(self, most=10_000):
        self.total = {ONE: 0, TWO: 0}
        self.most = most
        self.reads = 0
        self.published = []
        self.heard = []

    def write(self, n, attempt=ONE):
        message = log(attempt, self.total[attempt] + 1, n)
        self.total[attempt] += n
        self.published.append(message)
        return message

    async def read(self, attempt, after):
        self.reads += 1
        await asyncio.sleep(0)
        n = self.total[attempt] - after
        if n > self.most:
            data = {"attempt": attempt, "first": after + 1, "total": self.total[attempt]}
            return [made("job:42", "behind", data, self.total[attempt])]
        return [log(attempt, after + 1, n)] if n > 0 else []

    async def send(self, message):
        self.heard.append(message)

    def lines(self, attempt=ONE):
        """The numbers that were told, in order; those of a `behind` count, the page fetches them."""
        numbers = []
        for message in self.heard:
            if message.data["attempt"] != attempt:
                continue
            if message.type == "behind":
                numbers += range(message.data["first"], message.data["total"] + 1)
            else:
                numbers += [int(record.split("\t")[0]) for record in message.data["text"].split("\n")]
                assert message.data["n"] == message.data["text"].count("\n") + 1
        return numbers


async def flush_for_ever(outbox, source):
    while True:
        await outbox.flush(source.send)
        await asyncio.sleep(0)


async def drain(outbox, source):
    while await outbox.flush(source.send):
        pass


@given(
    actions=ACTIONS,
    sizes=st.lists(st.integers(1, 40), min_size=1),
    after=st.integers(0, 30),
    most=st.sampled_from([50, 10_000]),
)
def test_no_line_is_missing_or_doubled(actions, sizes, after, most):
    async def run():
        source = Source(most)
        source.write(30)
        outbox = Numbered("job:42", source.read, {ONE: after})
        pump = asyncio.create_task(flush_for_ever(outbox, source))
        for n, action in enumerate(actions):
            if action == "write":
                outbox.offer(source.write(sizes[n % len(sizes)]))
            elif action == "lose":
                source.write(sizes[n % len(sizes)])
            elif action == "again":
                outbox.offer(source.published[-1])
            elif action == "old":
                outbox.offer(source.published[n % len(source.published)])
            elif action == "head":
                outbox.offer(made("job:42", "head", {"attempt": ONE}, source.total[ONE]))
            else:
                await asyncio.sleep(0)
            assert len(outbox.queue) <= LINES_KEPT
        pump.cancel()
        await asyncio.wait({pump})
        outbox.resume()
        await drain(outbox, source)
        outbox.offer(made("job:42", "head", {"attempt": ONE}, source.total[ONE]))
        await drain(outbox, source)
        assert source.lines() == list(range(after + 1, source.total[ONE] + 1))

    asyncio.run(run())


async def test_a_lost_last_message_is_missed_because_of_the_head():
    source = Source()
    outbox = Numbered("job:42", source.read, {ONE: 0})
    source.write(3)
    await drain(outbox, source)
    source.write(2)  # lost on the way
    assert source.lines() == [1, 2, 3]
    outbox.offer(made("job:42", "head", None, 5))
    await drain(outbox, source)
    assert source.lines() == [1, 2, 3, 4, 5]


async def test_heads_that_tell_nothing_new_read_nothing():
    source = Source()
    outbox = Numbered("job:42", source.read, {ONE: 0})
    source.write(3)
    await drain(outbox, source)
    for _ in range(5):
        outbox.offer(made("job:42", "head", {"attempt": ONE}, 3))
        assert not await outbox.flush(source.send)
    assert source.reads == 1


async def test_a_new_attempt_is_read_from_its_start_even_when_its_first_message_was_lost():
    source = Source()
    outbox = Numbered("job:42", source.read, {ONE: 0})
    outbox.offer(source.write(3))
    source.write(4, TWO)
    outbox.offer(source.write(2, TWO))
    await drain(outbox, source)
    assert (source.lines(ONE), source.lines(TWO)) == ([1, 2, 3], [1, 2, 3, 4, 5, 6])


async def test_late_lines_of_an_older_attempt_are_not_read_from_the_start():
    source = Source()
    outbox = Numbered("job:42", source.read, {TWO: 0})
    source.write(900, ONE)
    outbox.offer(source.write(5, ONE))
    await drain(outbox, source)
    assert source.lines(ONE) == [901, 902, 903, 904, 905]


async def test_a_hole_that_the_database_does_not_have_either_is_told_and_does_not_stop_the_log():
    source = Source()
    outbox = Numbered("job:42", source.read, {ONE: 0})
    source.total[ONE] = 2
    outbox.offer(log(ONE, 6, 2))
    await drain(outbox, source)
    assert [(m.type, m.data.get("first"), m.data.get("total")) for m in source.heard] == [
        ("log", 1, None),
        ("behind", 3, 5),
        ("log", 6, None),
    ]


async def test_a_reading_that_fails_is_done_again():
    source = Source()
    source.write(3)
    failures = [OSError("the database is away")]

    async def read(attempt, after):
        if failures:
            raise failures.pop()
        return await source.read(attempt, after)

    outbox = Numbered("job:42", read, {ONE: 0})
    with pytest.raises(OSError, match="away"):
        await outbox.flush(source.send)
    await drain(outbox, source)
    assert source.lines() == [1, 2, 3]


async def test_a_page_that_asks_twice_hears_nothing_twice():
    source = Source()
    source.write(10)
    outbox = Numbered("job:42", source.read, {ONE: 4})
    await drain(outbox, source)
    outbox.go_on(ONE, 4)
    await drain(outbox, source)
    assert source.lines() == [5, 6, 7, 8, 9, 10]


async def test_a_job_s_state_goes_before_its_lines_and_only_the_newest():
    source = Source()
    outbox = Numbered("job:42", source.read, {ONE: 0})
    for n in range(100):
        outbox.offer(made("job:42", "state", {"n": n}))
    outbox.offer(source.write(1))
    await drain(outbox, source)
    states = [message.data["n"] for message in source.heard if message.type == "state"]
    assert states[-1] == 99 and len(states) <= KEPT
    assert source.heard[-1].type == "log"


async def test_a_slow_socket_gets_the_newest_of_each_thing():
    outbox, heard = Latest(newest_of_each("id")), []
    for n in range(10_000):
        outbox.offer(made("fleet", "server", {"id": n % 100, "n": n}))
        assert len(outbox.queue) <= 201

    async def send(message):
        heard.append(message.data)

    while await outbox.flush(send):
        pass
    assert {data["id"]: data["n"] for data in heard} == {n % 100: n for n in range(9900, 10_000)}


def test_one_type_does_not_push_out_another():
    messages = [
        made("server:7", "sample", {"n": 1}),
        made("server:7", "facts", {}),
        made("server:7", "sample", {"n": 2}),
    ]
    assert [(m.type, m.data.get("n")) for m in newest(messages)] == [("sample", 2), ("facts", None)]


@pytest.mark.parametrize(
    "payload",
    [b"", b"{}", b"\xff\xfe", b'{"seq":1,"type":"log","data":{"text":"a"}}', b'{"seq":1,"type":"log","data":null}'],
)
def test_a_payload_of_nobody_s_is_refused(payload):
    with pytest.raises(ValueError, match="message"):
        Message("job:42", payload)


def test_a_log_message_may_name_its_numbers_in_any_order():
    data = {"text": "1\to\ta\n2\to\tb", "n": 2, "first": 8, "attempt": ONE}
    message = made("job:42", "log", data, 9)
    assert (message.attempt, message.first, message.n, message.last) == (ONE, 8, 2, 9)
    assert message.after(8).data == {"attempt": ONE, "first": 9, "n": 1, "text": "2\to\tb"}
