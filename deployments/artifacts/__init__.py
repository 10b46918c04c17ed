"""Models on disk: what a folder holds, whether it is whole, its digests, and how a new one comes about. Plain code."""

from deployments.steps import Text


class BadModel(Exception):
    """A folder or file that is no model, or none that can be worked with; `text` says what to do."""

    def __init__(self, text: Text) -> None:
        super().__init__(text.en)
        self.text = text
