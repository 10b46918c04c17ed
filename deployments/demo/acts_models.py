"""Jobs about models, acted out: looking for them, deleting them."""

from deployments.artifacts import paths
from deployments.artifacts.progress import amount
from deployments.artifacts.scan import FLAGS
from deployments.demo import models
from deployments.demo.scene import DONE, Act, Ended, Scene, Told
from deployments.steps import Text

READ_S = 0.2  # for the headers of one model


def scan(scene: Scene, words: list[str]) -> Act:
    """What deployments/artifacts/scan.py prints and tells."""
    for folder in (word for word in words if word not in FLAGS):
        found = models.inside(scene, paths.tidy(folder))
        if not found and "--known" in words:
            yield Told(told="artifact_gone", data={"path": paths.tidy(folder)})
            yield f"{folder}: 已经没有 gone"
            continue
        for told in found:
            yield READ_S
            yield _line(told["model"])
            yield Told(told="artifact", data=told)
        yield Told(told="scan_done", data={"path": paths.tidy(folder)})
        yield f"{len(found)} 个模型 models: {folder}"
    return DONE


def _line(model: dict[str, object]) -> str:
    words = [str(model["format"]), str(model["architecture"]), str(model["dtype"]), amount(int(str(model["bytes"])))]
    wrong = model["problems"]
    first = f" — {wrong[0][1][0]} {wrong[0][1][1]}" if isinstance(wrong, list) and wrong else ""
    return f"{model['path']}: {', '.join(words)}{first}"


def remove(scene: Scene, path: str, fingerprint: str) -> Act:
    """What deployments/artifacts/remove.py does."""
    told = models.there(scene).get(path)
    if told and told["model"]["fingerprint"] != fingerprint:
        return Ended(
            1,
            Text(
                f"{path} 里现在是另一个内容，没有删除。请再查找一次模型，再决定。",
                f"{path} holds another content by now, and was not deleted. Look for models again, then decide.",
            ),
        )
    yield 1.0
    models.take_away(scene, path)
    yield Told(told="artifact_gone", data={"path": path})
    yield f"{path}: {'已删除 deleted' if told else '已经没有 already gone'}"
    return DONE
