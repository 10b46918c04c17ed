"""Lists of hosts: what is read, and what is said of each line before anything is done."""

import pytest
from django.utils import timezone, translation
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from console import spreadsheet
from console.errors import Invalid
from deployments.models import Enrolment, Server
from deployments.services import host_list

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def english():
    with translation.override("en"):
        yield


def only(text, **options):
    (line,) = host_list.read(text, **options)
    return line


def test_without_a_header_the_columns_have_an_order():
    line = only("kp-07.example.net,ops,2222,A1,env=prod;team=nlp,web-7,bj-1,/data/agent")
    assert (line.host, line.user, line.port, line.rack) == ("kp-07.example.net", "ops", 2222, "A1")
    assert line.labels == {"env": "prod", "team": "nlp", "site": "bj-1"}
    assert (line.name, line.prefix, line.problems) == ("web-7", "/data/agent", ())
    assert line.address == "kp-07.example.net:2222"


def test_what_a_line_leaves_out_is_made_up():
    line = only("192.0.2.11", user="ops", prefix="/data/agent")
    assert (line.name, line.user, line.port, line.prefix) == ("192-0-2-11", "ops", 22, "/data/agent")
    assert only("KP-08.example.net").name == "kp-08"
    assert only("ops@kp-09").user == "ops"
    assert only("[2001:db8::9]").name == "2001-db8-9"
    assert only("[2001:db8::9],,2222").address == "[2001:db8::9]:2222"


@pytest.mark.parametrize(
    "text",
    [
        "host,user,rack\nkp-01,ops,A1",
        "\ufeff机架,主机,用户\nA1,kp-01,ops",
        "机柜\t地址\t账号\nA1\tkp-01\tops",
        "主机，用户，机架\nkp-01，ops，A1",
        "\n# two lines\n,,\nHost,*User,Rack\n'kp-01',ops,A1\n".replace("'", '"'),
    ],
)
def test_headers_in_any_order_language_and_with_any_separator(text):
    line = only(text)
    assert (line.host, line.user, line.rack, line.problems) == ("kp-01", "ops", "A1", ())


def test_the_template_is_a_list_that_is_read_without_a_problem():
    made = "\n".join(",".join(cells) for cells in host_list.TEMPLATE)
    lines = host_list.read(made)
    assert [(line.name, line.problems) for line in lines] == [("kp-01", ()), ("kp-02", ())]
    assert lines[0].labels == {"env": "prod", "team": "nlp"}
    assert spreadsheet.harmless(host_list.TEMPLATE[1][0]) == host_list.TEMPLATE[1][0]


def test_files_of_chinese_spreadsheets_are_read():
    assert only(host_list.decode("主机,机架\nkp-01,东一\n".encode("gb18030"))).rack == "东一"
    assert only(host_list.decode("主机,机架\nkp-01,东一\n".encode("utf-8-sig"))).rack == "东一"
    with pytest.raises(Invalid):
        host_list.decode(b"PK\x03\x04\xff\xff\x00\x81\x20")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("kp 01", "neither an address"),
        ("$(reboot)", "neither an address"),
        ("-oProxyCommand=x", "neither an address"),
        ("192.0.2.300", "neither an address"),
        ("0x7f.1", "neither an address"),
        ("0x7F000001", "neither an address"),
        ("2130706433", "neither an address"),
        ("kp-01,o p", "no name of a user"),
        ("kp-01,-l", "no name of a user"),
        ("kp-01,,0", "no port"),
        ("kp-01,,70000", "no port"),
        ("kp-01,,ssh", "no port"),
        ("kp-01,,,,env", "no label"),
        ("kp-01,,,,,KP 1", "cannot be the name"),
        ("kp-01,,,,,join", "address of the console"),
        (",root", "host is missing"),
        ("kp-01,,," + "r" * 64, "at most 63"),
        ("kp-01,,,A1\u202e", "at most 63"),
        ("kp-01,,,,demo=1", "no label"),
        ("kp-01,,,,<b>=1", "no label"),
        ("kp-01,,,," + ";".join(f"l{n}=1" for n in range(41)), "at most 40 labels"),
        ("kp-01,,,,,,,relative/path", "absolute path"),
        ("kp-01,,,,,,,/a;reboot", "absolute path"),
        ("kp-01,,,,,,,/a,more", "more cells"),
    ],
)
def test_each_wrong_cell_is_named(line, told):
    problems = only(line).problems
    assert len(problems) == 1 and told in problems[0], problems


def test_the_same_host_or_name_twice_is_named_at_the_later_line():
    lines = host_list.read("kp-01\nkp-01\nkp-01,,2222,,,other\nkp-02,,,,,kp-01\n")
    assert [len(line.problems) for line in lines] == [0, 1, 0, 1]
    assert "line 1" in lines[1].problems[0] and "line 1" in lines[3].problems[0]


def test_servers_that_are_there_are_named():
    known = Server.objects.create(name="kp-01")
    Enrolment.objects.create(
        server=known, digest="1", expires_at=timezone.now(), used_at=timezone.now(), address="192.0.2.11"
    )
    Server.objects.create(name="demo-1", simulated=True)
    Server.objects.create(name="never-came")
    lines = {line.name: line for line in host_list.read("kp-01\ndemo-1\nnever-came\n192.0.2.11,,,,,new\n")}
    assert "already" in lines["kp-01"].problems[0]
    assert "simulated" in lines["demo-1"].problems[0]
    assert lines["never-came"].problems == ()
    assert lines["new"].problems == () and "kp-01 has joined from this address" in lines["new"].notes[0]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no host"),
        ("# nothing\n,,\n", "no host"),
        ("host,colour\nkp-01,red", "colour"),
        ("user,rack\nroot,A1", "host among them"),
        ("host,ip\nkp-01,192.0.2.1", "each column once"),
        ("kp-01\n" * 1001, "at most 1000"),
        ("x" * 500_001, "500 kB"),
        ("kp-01\0", "null character"),
    ],
)
def test_what_is_no_list_is_refused_in_words(text, told):
    with pytest.raises(Invalid) as refused:
        host_list.read(text)
    assert told in str(refused.value)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(alphabet=st.sampled_from("host,user\n\t;=@:[]/'\"0 1.é主机，\ud800x-_"), max_size=80))
def test_any_text_is_a_list_or_refused_in_words(text):
    try:
        lines = host_list.read(text)
    except Invalid:
        return
    assert all(line.problems or line.host for line in lines)
