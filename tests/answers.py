"""How tests read answers."""

import pytest


def whole(response):
    """What a stream sends. It is made for ASGI; here Django gathers it, and warns that it does."""
    with pytest.warns(Warning, match="must consume asynchronous iterators"):
        return b"".join(response)
