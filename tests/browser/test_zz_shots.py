import pytest
from tests.browser.test_stacks import ACTED, servers  # noqa
@pytest.mark.parametrize(("theme","width","language"), [("dark",1440,"en"),("light",360,"zh-hans"),("light",1440,"zh-hans"),("dark",360,"en")])
def test_shot(console, pages, theme, width, language):
    for n, address in enumerate((ACTED, "/stacks/vllm-ascend-0.23.0/plan/kp-played/")):
        page = pages.open(address, theme=theme, width=width, language=language)
        page.wait_for_timeout(300)
        page.screenshot(path=f"/tmp/b/sim_{n}_{theme}_{width}_{language}.png", full_page=True)
