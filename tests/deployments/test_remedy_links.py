import pytest

from deployments.views import remedy_links

pytestmark = pytest.mark.django_db


def test_a_remedy_takes_the_stack_along_and_leaves_the_fault_that_was_acted_out(operator):
    known = {"fault": "wrong_chip", "stack": "vllm-ascend-0.18.0"}
    address = remedy_links.job_address("install", "kp-01", known, operator, stack="vllm-ascend-0.18.0")
    assert address == "/stacks/vllm-ascend-0.18.0/install/kp-01/"
