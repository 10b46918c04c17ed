"""A folder of a plain web server: by its listing (nginx, Apache, python -m http.server), else by the names that models
have. Digests where a file SHA256SUMS lies there."""

import html.parser
import json
import re
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote, unquote, urljoin, urlsplit

from deployments.artifacts import BadModel
from deployments.artifacts.files import DEEPEST, MOST_FILES, SKIPPED
from deployments.artifacts.sources import Broken, File, Stream
from deployments.artifacts.sources.hubs import SHA256, hex_of, range_headers
from deployments.artifacts.sources.web import Answer, NotThere, Web, not_it
from deployments.steps import Text

AT_ONCE = 8
MOST_LISTING = 8 << 20
SUMS = ("SHA256SUMS", "sha256sums.txt", "sha256sum.txt")
INDEXES = ("model.safetensors.index.json", "quant_model_weight.safetensors.index.json", "pytorch_model.bin.index.json")
KNOWN = (
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json",
    "merges.txt", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja", "preprocessor_config.json",
    "quant_model_description.json", "model.safetensors", "pytorch_model.bin", *INDEXES,
)  # fmt: skip
SUM_LINE = re.compile(r"([0-9A-Fa-f]{64})[ \t]+\*?(?:\./)?(\S.{0,599})")


class Links(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.found += [value for name, value in attrs if name == "href" and value]


class WebFolder:
    """`url` is the folder's address."""

    revision = ""

    def __init__(self, web: Web, url: str) -> None:
        self.web, self.url = web, url.partition("#")[0].partition("?")[0].rstrip("/") + "/"
        self.said = self.url
        self.sums: dict[str, str] = {}

    def files(self) -> list[File]:
        self._read_sums()
        names = sorted(set(self._listed("", 0)))
        if not names:
            return self._known()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(self._file, names))

    def _read_sums(self) -> None:
        for name in SUMS:
            try:
                text = self._text(name)
            except (BadModel, Broken):
                continue
            found = (SUM_LINE.fullmatch(line.strip()) for line in text.splitlines()[:MOST_FILES])
            self.sums = {match[2]: hex_of(match[1], SHA256) for match in found if match}
            if self.sums:
                return

    def _text(self, name: str) -> str:
        answer = self.web.open(urljoin(self.url, quote(name)))
        try:
            if answer.header("Content-Type").startswith("text/html"):
                raise not_it(answer.url, "text/html")
            return answer.read_all(MOST_LISTING).decode(errors="replace")
        finally:
            answer.close()

    def _listed(self, below: str, depth: int) -> list[str]:
        """Names of the files in a folder and those below; empty where the server lists none."""
        here = urljoin(self.url, quote(below))
        try:
            answer = self.web.open(here)
        except NotThere:
            return []
        except BadModel:
            if not below:
                return []  # 403 is how servers say that they list nothing; the files may be there
            raise
        try:
            if not answer.header("Content-Type").startswith("text/html"):
                return []
            links = Links()
            links.feed(answer.read_all(MOST_LISTING).decode(errors="replace"))
        finally:
            answer.close()
        found: list[str] = []
        for name in dict.fromkeys(one for link in links.found if (one := _child(here, link))):
            if name.rstrip("/") in SKIPPED:
                continue
            if name.endswith("/"):
                found += self._listed(below + name, depth + 1) if depth < DEEPEST else []
            else:
                found.append(below + name)
            if len(found) > MOST_FILES:
                break  # names.py says so
        return found

    def _known(self) -> list[File]:
        """What is there of the names that models have, and of the shards that its index names."""
        names = list(KNOWN)
        for index in INDEXES:
            try:
                listed = json.loads(self._text(index)).get("weight_map", {}).values()
                names += [name for name in dict.fromkeys(listed) if isinstance(name, str)]
            except (BadModel, ValueError, AttributeError, RecursionError):
                continue
        names = list(dict.fromkeys([*names, *self.sums]))[:MOST_FILES]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            found = [file for file in pool.map(self._file_if_there, names) if file]
        if not any(file.name == "config.json" for file in found):
            raise BadModel(
                Text(
                    f"{self.url} 没有文件列表，也没有 config.json。请检查地址：它应是模型自己的目录。",
                    f"{self.url} has no listing and no config.json. Look at the address: it is to be the folder of the "
                    "model itself.",
                )
            )
        return found

    def _file_if_there(self, name: str) -> File | None:
        try:
            return self._file(name)
        except BadModel:
            return None

    def _file(self, name: str) -> File:
        url = urljoin(self.url, quote(name, safe="/"))
        answer = self._head(url)
        try:
            if answer.header("Content-Type").startswith("text/html") and not name.endswith((".html", ".htm")):
                raise not_it(url, "text/html")
            return File(name, answer.total, url, sha256=self.sums.get(name, ""), tag=answer.tag)
        finally:
            answer.close()

    def _head(self, url: str) -> Answer:
        """Servers that know no HEAD are asked for the file itself, which is then left unread."""
        try:
            return self.web.open(url, method="HEAD")
        except (NotThere, Broken):
            return self.web.open(url)

    def open(self, file: File, begin: int, tag: str) -> Stream:
        return self.web.open(file.url, range_headers(begin, tag))

    def sha256(self, file: File) -> str:
        return file.sha256


def _child(here: str, link: str) -> str:
    """The name that a link of a listing has within its folder, '' for one that leads elsewhere."""
    try:
        base, found = urlsplit(here), urlsplit(urljoin(here, link))
    except ValueError:
        return ""
    if (found.scheme, found.netloc) != (base.scheme, base.netloc) or found.query:
        return ""
    if not found.path.startswith(base.path):
        return ""
    rest = found.path[len(base.path) :]
    inner = rest.rstrip("/")
    return unquote(rest, errors="surrogateescape") if inner and "/" not in inner else ""
