"""What the lists share: an address leaves out what says nothing, and a page is always one that exists."""

import pytest

from deployments.services import deployment_list, job_list, paging


def test_an_address_begins_at_the_beginning_and_says_only_what_was_asked():
    asked = deployment_list.Filters(q="a b", state="ready", page=3)
    assert asked.any and asked.address() == "?q=a+b&state=ready"
    assert asked.address(page=4) == "?q=a+b&state=ready&page=4"
    assert asked.address(q="", state="", page=1) == "?"


def test_a_place_and_problems_are_no_filters():
    asked = job_list.Filters(before=7, problems=["kind=x is not known"])
    assert not asked.any and asked.address() == "?" and asked.address(after=9) == "?after=9"


@pytest.mark.parametrize(
    "given, number", [("3", 3), ("0", 1), ("", 1), ("-2", 1), ("٣", 1), ("99999", 10_000), ("9" * 6, 1)]
)
def test_a_page_that_is_none_is_the_first(given, number):
    assert paging.page_number({"page": given}) == number


@pytest.mark.parametrize("total, last, older", [(0, 1, 0), (50, 1, 0), (51, 2, 2)])
def test_the_first_page_knows_whether_there_is_another(total, last, older):
    page = paging.Page([], total, 1)
    assert (page.last, page.older) == (last, older)
