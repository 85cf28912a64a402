"""With everything off, what remains of `aryl` is FIFO itself."""

from __future__ import annotations

from hypothesis import given
from tests.property.watch import plain_run
from tests.strategies import Case, cases


@given(case=cases(plain=True, slow=True))
def test_aryl_without_its_parts_is_fifo(case: Case) -> None:
    assert plain_run(case, "aryl:order=fifo,no-loaning,no-scaling") == plain_run(case, "fifo")
