"""A list of hosts as CSV: read, and everything that is wrong with a line said before anything is done."""

import csv
import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from django.utils.translation import gettext as _

from console import untrusted
from console.errors import Invalid
from console.names import is_address, is_number
from deployments.models import Enrolment, Server
from deployments.services import inventory, join

MOST_LINES = 1000
MOST_CHARACTERS = 500_000
ORDER = ("host", "user", "port", "rack", "labels", "name", "site", "prefix")  # without a header
HEADERS = {
    word: column
    for column, words in {
        "host": "host address ip 主机 主机名 地址 主机地址 ip地址",
        "user": "user username 用户 用户名 账号",
        "port": "port 端口 ssh端口",
        "rack": "rack 机架 机柜",
        "labels": "labels label 标签",
        "name": "name server 名称 服务器 服务器名称",
        "site": "site 站点 机房",
        "prefix": "prefix folder 目录 安装目录",
    }.items()
    for word in words.split()
}
HOST_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*", re.I)
USER = re.compile(r"[a-z_][a-z0-9_.@\\-]{0,62}", re.I)
PREFIX = re.compile(r"/[A-Za-z0-9._/-]{1,199}")
TEMPLATE = [
    ("host", "user", "port", "rack", "site", "labels", "name"),
    ("192.0.2.11", "root", "22", "A1", "", "env=prod;team=nlp", "kp-01"),
    ("kp-02.example.net", "ops", "", "A1", "", "", ""),
]


@dataclass(frozen=True)
class Line:
    """One host. `problems` keep it from joining, `notes` do not; both are sentences. `n` counts the lines from 1."""

    n: int
    host: str
    port: int
    user: str
    name: str
    rack: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    prefix: str = ""
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        return address(self.host, self.port)


def address(host: str, port: int) -> str:
    """host:port, the port only where it is not 22."""
    host = f"[{host}]" if ":" in host else host
    return host if port == 22 else f"{host}:{port}"


def decode(data: bytes) -> str:
    """The text of an uploaded file: UTF-8, or GB 18030 as Chinese spreadsheets write it. Raises Invalid."""
    for encoding in ("utf-8-sig", "gb18030"):
        try:
            return data.decode(encoding)
        except UnicodeDecodeError:
            continue
    raise Invalid(
        _("The file is no text in UTF-8 or GB 18030."),
        _("Save it in the spreadsheet as “CSV UTF-8”, then choose it again."),
        code="bad_encoding",
    )


def read(text: str, *, user: str = "root", prefix: str = "") -> list[Line]:
    """The lines of a list, each with its problems; `user` and `prefix` stand where a line names none.

    Raises Invalid where it is no list of hosts at all.
    """
    if len(text) > MOST_CHARACTERS:
        raise Invalid(_("The list is longer than 500 kB."), _("Divide it into several lists."), code="too_long")
    if "\0" in text:
        raise Invalid(_("The list holds a null character."), _("Save it as CSV, not as a workbook."), code="no_text")
    text = untrusted.text(text, MOST_CHARACTERS)
    lines = [_line(n, cells, user.strip(), prefix.strip()) for n, cells in _cells(text)]
    if not lines:
        raise Invalid(
            _("The list names no host."), _("Write one host a line, for example: 192.0.2.11,root"), code="empty_list"
        )
    if len(lines) > MOST_LINES:
        raise Invalid(
            _("The list has %(n)s hosts; one takes at most %(most)s.") % {"n": len(lines), "most": MOST_LINES},
            _("Divide it into several lists."),
            code="too_many",
        )
    return _against_each_other(_against_servers(lines))


def _cells(text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """(number of the line, its cells by column), without blank lines, comments and the header. Raises Invalid."""
    order: list[str] = list(ORDER)
    first = True
    for n, raw in enumerate(text.lstrip("\ufeff").splitlines(), 1):
        if not raw.strip(" ,;\t，") or raw.lstrip().startswith("#"):
            continue
        cells = _split(raw)
        if first and cells[0].lower().lstrip("*") in HEADERS:
            order = _header(cells)
        else:
            more = [cell for cell in cells[len(order) :] if cell]
            named = dict(zip(order, cells, strict=False))
            yield n, named | ({"more": more[0]} if more else {})
        first = False


def _split(raw: str) -> list[str]:
    """Cells by comma; by tab where a spreadsheet was pasted, by the Chinese comma where there is no other."""
    mark = "\t" if "\t" in raw else "," if "," in raw or "，" not in raw else "，"
    try:
        return [cell.strip() for cell in next(csv.reader([raw], delimiter=mark), [""])]
    except csv.Error:  # a cell of more than 128 kB
        return [cell.strip()[:300] for cell in raw.split(mark)]


def _header(cells: list[str]) -> list[str]:
    order = [HEADERS.get(cell.lower().lstrip("*"), "") for cell in cells]
    unknown = [cell for cell, column in zip(cells, order, strict=True) if cell and not column]
    if unknown:
        raise Invalid(
            _("The header names a column “%(name)s” that there is not.") % {"name": unknown[0][:40]},
            _("Use: %(names)s. Only host is needed.") % {"names": ", ".join(ORDER)},
            code="bad_header",
        )
    twice = next((column for column in order if column and order.count(column) > 1), None)
    if twice or "host" not in order:
        raise Invalid(
            _("The header must name each column once, and host among them."),
            _("Use: %(names)s. Only host is needed.") % {"names": ", ".join(ORDER)},
            code="bad_header",
        )
    return order


def _line(n: int, cells: dict[str, str], user: str, prefix: str) -> Line:
    problems: list[str] = []
    host, at_user = cells.get("host", ""), ""
    if "@" in host:
        at_user, host = host.rsplit("@", 1)
    host = host.strip("[]").lower()
    line = Line(
        n, host[:253], _port(cells.get("port", ""), problems), (cells.get("user") or at_user or user)[:63],
        (cells.get("name", "").lower() or default_name(host))[:63], cells.get("rack", "")[:63],
        labels(cells, problems), (cells.get("prefix") or prefix)[:200],
    )  # fmt: skip
    if cells.get("more"):
        problems.append(_("There are more cells than columns: “%(cell)s”.") % {"cell": cells["more"][:40]})
    return replace(line, problems=(*_wrong(line, cells), *problems))


def _wrong(line: Line, cells: dict[str, str]) -> Iterator[str]:
    if not line.host:
        yield _("The host is missing.")
    elif not _is_host(line.host):
        yield _("“%(host)s” is neither an address nor the name of a host.") % {"host": line.host[:60]}
    if not USER.fullmatch(line.user):
        yield _("“%(user)s” is no name of a user.") % {"user": line.user}
    if (_is_host(line.host) or cells.get("name")) and not join.NAME.fullmatch(line.name):
        yield _("“%(name)s” cannot be the name of a server: a–z, 0–9, “-”, “_”.") % {"name": line.name}
    elif line.name in join.RESERVED:
        yield _("“%(name)s” is an address of the console itself.") % {"name": line.name}
    try:
        inventory.clean({column: cells.get(column, "") for column in ("rack", "site")})
    except Invalid as error:
        yield error.what
    if line.prefix and not PREFIX.fullmatch(line.prefix):
        yield _("The folder must be an absolute path of letters, digits and . _ / - only.")


def _is_host(host: str) -> bool:
    return is_address(host) or (bool(HOST_NAME.fullmatch(host)) and not is_number(host))


def default_name(host: str) -> str:
    """kp-02 for kp-02.example.net, 192-0-2-11 for 192.0.2.11."""
    try:
        return re.sub(r"[.:]+", "-", str(ipaddress.ip_address(host))).strip("-")
    except ValueError:
        return host.split(".")[0]


def _port(text: str, problems: list[str]) -> int:
    if not text:
        return 22
    if text.isascii() and text.isdecimal() and len(text) < 6 and 0 < int(text) < 65536:
        return int(text)
    problems.append(_("“%(port)s” is no port from 1 to 65535.") % {"port": text[:20]})
    return 22


def labels(cells: dict[str, str], problems: list[str]) -> dict[str, str]:
    """{"env": "prod"} of "env=prod;team=nlp"; the site is a label, too."""
    found = {}
    for word in re.split(r"[;；,\s]+", cells.get("labels", "")):
        name, _equals, value = word.partition("=")
        if word and not _is_label(name, value):
            problems.append(_("“%(word)s” is no label: write name=value;name=value.") % {"word": word[:60]})
        elif word:
            found[name] = value
    if len(found) > inventory.MOST_LABELS:
        problems.append(_("A server has at most %(most)s labels.") % {"most": inventory.MOST_LABELS})
    if cells.get("site"):
        found["site"] = cells["site"][:63]
    return found


def _is_label(name: str, value: str) -> bool:
    try:
        return bool(inventory.clean_labels({name: value}))
    except Invalid:
        return False


def _against_servers(lines: list[Line]) -> list[Line]:
    """Names that are taken are problems; an address from which a server has joined is worth a note."""
    known = {server.name: server for server in Server.objects.filter(name__in={line.name for line in lines})}
    used = Enrolment.objects.exclude(used_at=None)
    joined = set(used.filter(server__in=known.values()).values_list("server__name", flat=True))
    addresses = dict(used.filter(address__in=[line.host for line in lines if is_address(line.host)])
                     .values_list("address", "server__name"))  # fmt: skip
    checked = []
    for line in lines:
        server = known.get(line.name)
        if server and (server.simulated or server.is_local):
            problem = _("%(name)s is a simulated server, or the console's own machine.") % {"name": line.name}
            line = replace(line, problems=(*line.problems, problem))
        elif server and (server.name in joined or server.last_seen_at):
            problem = _("There is a server %(name)s already. Leave this line out, or give it another name.")
            line = replace(line, problems=(*line.problems, problem % {"name": line.name}))
        elif line.host in addresses:
            note = _("%(name)s has joined from this address.") % {"name": addresses[line.host]}
            line = replace(line, notes=(*line.notes, note))
        checked.append(line)
    return checked


def _against_each_other(lines: list[Line]) -> list[Line]:
    """The same host or name twice: the later line is the one that is wrong."""
    hosts: dict[tuple[str, int], int] = {}
    names: dict[str, int] = {}
    checked = []
    for line in lines:
        problems = list(line.problems)
        if line.host and (before := hosts.setdefault((line.host, line.port), line.n)) != line.n:
            problems.append(_("The same host is in line %(n)s.") % {"n": before})
        elif line.name and (before := names.setdefault(line.name, line.n)) != line.n:
            problems.append(_("The same name is in line %(n)s.") % {"n": before})
        checked.append(replace(line, problems=tuple(problems)))
    return checked
