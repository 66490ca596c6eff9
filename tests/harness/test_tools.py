import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlexpert.harness import tools
from mlexpert.harness import tree as trees
from mlexpert.harness.prompts import FULL_TOOLS, SHORT_TOOLS
from mlexpert.harness.tree import Node, Submission, Tree
from mlexpert.types import ExecStatus, ToolCall

KINDS = (Submission.VALID, Submission.NONE, Submission.VALID)
NODES = tuple(Node(i, None, "", ExecStatus.OK, "", "", "", None, kind, "") for i, kind in enumerate(KINDS, start=1))
TREE = trees.invalidate(Tree(NODES), 3, "leak")


def read(name, tree=TREE, **arguments):
    return tools.read_call(ToolCall(name, arguments), tree)


def test_good_calls_are_read():
    assert read("execute_code", code="x = 1\n") == tools.ExecuteCode("x = 1\n", None)
    assert read("execute_code", code="x", parent=" 2 ") == tools.ExecuteCode("x", 2)
    assert read("update_answer", node="1") == tools.UpdateAnswer(1)
    assert read("invalidate_node", node="2", reason=" leak ") == tools.InvalidateNode(2, "leak")
    assert (read("analyze"), read("analyze", node="3")) == (tools.Analyze(None), tools.Analyze(3))


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("shell", {}, "unknown tool"),
        ("execute_code", {}, "needs: code"),
        ("execute_code", {"code": "x", "timeout": "9"}, "takes only: code, parent"),
        ("execute_code", {"code": " \n"}, "needs a script"),
        ("execute_code", {"code": "x" * 100_001}, "longer than"),
        ("execute_code", {"code": "\ud800"}, "UTF-8"),
        ("execute_code", {"code": "x", "parent": "3"}, "was invalidated"),
        ("update_answer", {"node": "2"}, "no valid submission"),
        ("update_answer", {"node": "3"}, "was invalidated"),
        ("update_answer", {"node": "4"}, "nodes are 1 to 3"),
        ("update_answer", {"node": "0"}, "nodes are 1 to 3"),
        ("update_answer", {"node": "-1"}, "by its number"),
        ("update_answer", {"node": "1.0"}, "by its number"),
        ("update_answer", {"node": "²"}, "by its number"),
        ("update_answer", {"node": "9" * 5000}, "nodes are 1 to 3"),
        ("invalidate_node", {"node": "1", "reason": ""}, "needs a reason"),
        ("analyze", {"node": ""}, "by its number"),
    ],
)
def test_bad_calls_get_a_short_reason(name, arguments, reason):
    rejected = read(name, **arguments)
    assert isinstance(rejected, tools.Rejected) and reason in rejected.reason


def test_no_node_exists_before_the_first_execution():
    assert read("analyze", Tree(), node="1") == tools.Rejected("there is no node yet: call execute_code first")


ARGUMENTS = st.dictionaries(st.sampled_from(["code", "parent", "node", "reason", "x"]), st.text(max_size=20))


@given(st.sampled_from([*tools.ARGUMENTS, "zzz"]), ARGUMENTS)
def test_any_call_is_read_or_rejected_in_80_characters_without_an_echo(name, arguments):
    call = tools.read_call(ToolCall(name, arguments), TREE)
    if isinstance(call, tools.Rejected):
        assert len(call.reason) <= 80 and call.reason.isascii()


@pytest.mark.parametrize("specs", [SHORT_TOOLS, FULL_TOOLS], ids=["short", "full"])
def test_the_policy_is_told_of_exactly_the_tools_that_exist(specs):
    told = {spec.name: set(spec.parameters) for spec in specs}
    assert told == {name: set(required | optional) for name, (required, optional) in tools.ARGUMENTS.items()}
