from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from network_provisioner.controllers.rules import (
    MAX_HARD_TIMEOUT_S,
    Changes,
    FlowRule,
    SelectGroup,
    diff,
    hard_timeout,
    is_our_number,
    our_numbers,
)

NOW = 1_700_000_000.0
RULE = FlowRule(1, 200, "10.10.0.1", "10.10.0.2", 10, cookie=7, dscp=3, expires_at=NOW + 60)


@given(st.floats(-1e9, 1e9))
def test_a_rule_ends_with_its_lease_or_within_a_second_after(left_s: float) -> None:
    timeout = hard_timeout(NOW + left_s, NOW)
    assert 1 <= timeout <= MAX_HARD_TIMEOUT_S
    if 1 <= left_s <= MAX_HARD_TIMEOUT_S:
        assert 0 <= timeout - left_s <= 1.001


def test_no_lease_is_no_timeout() -> None:
    assert hard_timeout(math.inf, NOW) == 0


def test_the_same_rule_is_left_alone() -> None:
    assert not diff([RULE], [RULE], NOW)
    seen = replace(RULE, expires_at=NOW + 60.9)
    assert not diff([seen], [RULE], NOW)


def test_another_lease_action_or_content_is_sent_anew() -> None:
    for seen in (
        replace(RULE, expires_at=NOW + 30),
        replace(RULE, expires_at=math.inf),
        replace(RULE, out_port=11),
        replace(RULE, dscp=None),
        replace(RULE, eth_dst="02:00:00:00:00:01"),
        replace(RULE, cookie=8),
    ):
        assert diff([seen], [RULE], NOW).add == (RULE,)
        assert diff([seen], [RULE], NOW).delete == ()


def test_a_lease_longer_than_openflow_can_say_is_renewed_on_the_way() -> None:
    long = replace(RULE, expires_at=NOW + 10 * MAX_HARD_TIMEOUT_S)
    assert not diff([replace(RULE, expires_at=NOW + MAX_HARD_TIMEOUT_S)], [long], NOW)
    assert diff([replace(RULE, expires_at=NOW + 100)], [long], NOW).add == (long,)


def test_what_is_not_wanted_is_deleted_last() -> None:
    other = replace(RULE, dst="10.10.0.3")
    inner = replace(RULE, dpid=2, hop=1)
    changes = diff([other], [RULE, inner], NOW)
    assert [(s.add, s.delete) for s in changes.stages()] == [
        ((inner,), ()),
        ((RULE,), ()),
        ((), (other,)),
    ]


def test_what_rules_refer_to_comes_before_them_and_goes_after_them() -> None:
    group = SelectGroup(1, 5, ())
    changes = Changes((RULE,), (replace(RULE, group=4),), (group,), (), (replace(group, number=4),))
    told = [what for wave in changes.waves() for what, _ in wave]
    assert told == ["add_entry", "add", "delete", "delete_entry"]


def test_no_two_groups_have_one_number() -> None:
    numbers = our_numbers(map(str, range(2000)))  # of 65,536: some hashes are the same
    assert len(set(numbers.values())) == 2000 and all(map(is_our_number, numbers.values()))
