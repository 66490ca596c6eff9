import pytest

from mlexpert.harness import tree as trees
from mlexpert.harness.tree import Node, Submission, Tree
from mlexpert.types import ExecStatus, Verdict, VerdictStatus


def node(id, parent=None, submission=Submission.VALID, score=None):
    return Node(id, parent, "", ExecStatus.OK, "", "", "", score, submission, "")


def planted(*nodes) -> Tree:
    tree = Tree()
    for one in nodes:
        tree = trees.grow(tree, one)
    return tree


def test_a_tree_only_grows_in_order_and_on_what_is_there():
    tree = planted(node(1), node(2, 1))
    with pytest.raises(ValueError, match="ids count up"):
        trees.grow(tree, node(2))
    with pytest.raises(ValueError, match="not in the tree"):
        trees.grow(tree, node(3, 3))
    with pytest.raises(KeyError):
        trees.get(tree, 0)


def test_invalidation_reaches_descendants_only_and_takes_the_choice_back():
    tree = planted(node(1), node(2, 1), node(3), node(4, 2), node(5, 3))
    tree = trees.invalidate(trees.choose(tree, 4), 1, "leak")
    assert set(tree.invalidated) == {1, 2, 4} and tree.chosen is None
    assert trees.answer(tree) == 5
    assert dict(trees.invalidate(tree, 2, "again").invalidated) == dict(tree.invalidated)
    with pytest.raises(ValueError, match="cannot be the answer"):
        trees.choose(tree, 2)


def test_the_answer_skips_nodes_without_a_valid_submission():
    tree = planted(node(1), node(2, submission=Submission.INVALID), node(3, submission=Submission.NONE))
    assert trees.answer(tree) == 1 and trees.answer(Tree()) is None


@pytest.mark.parametrize(("lower", "best"), [(True, 1), (False, 3)])
def test_the_best_node_follows_the_direction_and_later_wins_ties(lower, best):
    tree = planted(node(1, score=0.1), node(2, score=0.9), node(3, score=0.9), node(4))
    assert trees.best_by_own_score(tree, lower) == best
    assert trees.best_by_own_score(planted(node(1), node(2)), lower) == 2


def test_a_node_keeps_nothing_of_the_verdict_but_status_and_reason(make):
    bare = trees.node_of(1, None, "x", make.execution("cv 1"), make.graded(0.1))
    rich = trees.node_of(1, None, "x", make.execution("cv 1"), make.graded(99.0))
    assert bare == rich
    bad = trees.node_of(1, None, "x", make.execution(), Verdict(VerdictStatus.UNREADABLE, reason="not UTF-8"))
    assert (bad.submission, bad.reason) == (Submission.INVALID, "not UTF-8")
    assert trees.node_of(1, None, "x", make.execution(oom_kills=1), make.graded(0.1)).notes
    with pytest.raises(ValueError, match="infrastructure"):
        trees.node_of(1, None, "x", make.execution(status=ExecStatus.SETUP_FAILED), Verdict(VerdictStatus.ABSENT))
