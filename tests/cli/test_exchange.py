"""`proctor export` and `proctor import` as programs."""

import json
from pathlib import Path

import pytest

from tests.cli.programs import Proctor
from tests.lazy_imports import LazyModule
from tests.ledger.ledgers import make_ledger, record_bytes

PARQUET = LazyModule("pyarrow.parquet")


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """A ledger with three trials."""
    make_ledger(tmp_path, ["a", "b", "c"]).close()
    return tmp_path / "ledger"


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """Where another ledger will be."""
    return tmp_path / "other"


def test_a_bundle_goes_from_one_ledger_into_another(
    proctor: Proctor, ledger: Path, other: Path, tmp_path: Path
) -> None:
    bundle = tmp_path / "all.tar.zst"
    ran = proctor("export", "--ledger", ledger, "-o", bundle)
    assert (ran.code, ran.err) == (0, "")
    assert "3 trials of a ledger of 4 entries, 0 left out" in ran.out
    checked = proctor("check", bundle)
    assert checked.code == 0
    assert "who signed it: it names its own key" in checked.out
    taken = proctor("import", "bundle", bundle, "--ledger", other, "--json")
    assert taken.code == 0
    assert "a new ledger" in taken.err
    facts = json.loads(taken.out)
    assert (facts["sealed"], facts["sealed_before"], facts["origin"]) == (
        3,
        0,
        "example.org/ledger",
    )
    again = proctor("import", "bundle", bundle, "--ledger", other)
    assert "trials      0 sealed, 3 sealed before" in again.out
    assert proctor("ledger", "verify", "--ledger", other).code == 0


def test_a_part_of_a_ledger_says_how_much_it_leaves_out(
    proctor: Proctor, ledger: Path, other: Path, tmp_path: Path
) -> None:
    bundle = tmp_path / "part.tar.zst"
    ran = proctor("export", "--ledger", ledger, "-o", bundle, "--where", "trial=b", "--json")
    assert json.loads(ran.out)["left_out"] == 2
    taken = proctor("import", "bundle", bundle, "--ledger", other)
    assert "not in it   2 left out, 0 withheld" in taken.out


def test_a_broken_bundle_is_damage_and_leaves_no_ledger(
    proctor: Proctor, ledger: Path, other: Path, tmp_path: Path
) -> None:
    bundle = tmp_path / "all.tar.zst"
    proctor("export", "--ledger", ledger, "-o", bundle)
    bundle.write_bytes(bundle.read_bytes()[:200])
    ran = proctor("import", "bundle", bundle, "--ledger", other)
    assert ran.code == 2
    assert "not a bundle, or an incomplete one" in ran.err
    assert not other.exists()
    assert proctor("check", bundle).code == 2


def test_a_bundle_of_another_signer_is_refused(
    proctor: Proctor, ledger: Path, other: Path, tmp_path: Path
) -> None:
    bundle = tmp_path / "all.tar.zst"
    proctor("export", "--ledger", ledger, "-o", bundle)
    (tmp_path / "elsewhere").mkdir()
    make_ledger(tmp_path / "elsewhere").close()
    stranger = proctor(
        "ledger", "checkpoint", "--ledger", tmp_path / "elsewhere" / "ledger", "--public-key"
    ).out.strip()
    ran = proctor("import", "bundle", bundle, "--ledger", other, "--signed-by", stranger)
    assert ran.code == 1
    assert "no signature by" in ran.err
    assert not other.exists()
    assert proctor("check", bundle, "--key", stranger).code == 1


def test_a_tree_of_records_goes_out_and_in(
    proctor: Proctor, ledger: Path, other: Path, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    ran = proctor("export", "--ledger", ledger, "--format", "aec-bench", "-o", tree)
    assert (ran.code, ran.out) == (0, f"{tree}: 3 trials\n")
    (tree / "experiment-001" / "broken.json").write_text("{")
    taken = proctor("import", "aec-bench", tree, "--ledger", other)
    assert taken.code == 3
    assert "4 records found: 3 imported, 0 already there, 1 refused" in taken.out
    assert f"refused: {tree}/experiment-001/broken.json" in taken.out


def test_a_tree_with_nothing_good_in_it_is_refused(
    proctor: Proctor, other: Path, tmp_path: Path
) -> None:
    (tmp_path / "tree" / "e").mkdir(parents=True)
    (tmp_path / "tree" / "e" / "t.json").write_bytes(record_bytes("other"))
    ran = proctor("import", "aec-bench", tmp_path / "tree", "--ledger", other, "--json")
    assert ran.code == 2
    facts = json.loads(ran.out)
    assert (facts["found"], facts["imported"], facts["already_there"]) == (1, [], [])
    assert "its path does not match" in facts["refused"][0]["message"]
    assert not other.exists()


def test_a_table_has_a_row_a_trial(proctor: Proctor, ledger: Path, tmp_path: Path) -> None:
    target = tmp_path / "trials.parquet"
    ran = proctor("export", "--ledger", ledger, "--format", "parquet", "-o", target)
    assert ran.code == 0
    table = PARQUET.read_table(target)
    assert table.column("trial_id").to_pylist() == ["a", "b", "c"]
    assert table.column("reward").to_pylist() == [1.0, 1.0, 1.0]
    again = proctor("export", "--ledger", ledger, "--format", "parquet", "-o", target)
    assert again.code == 2
    assert "an export does not replace files" in again.err


def test_where_there_is_no_ledger_nothing_is_exported(proctor: Proctor, tmp_path: Path) -> None:
    ran = proctor("export", "--ledger", tmp_path / "nowhere", "-o", tmp_path / "x.tar.zst")
    assert ran.code == 2
    assert "not a ledger" in ran.err
    assert not (tmp_path / "x.tar.zst").exists()


def test_options_that_mean_no_trial_are_said(
    proctor: Proctor, ledger: Path, tmp_path: Path
) -> None:
    ran = proctor(
        "export",
        "--ledger",
        ledger,
        "--format",
        "parquet",
        "-o",
        tmp_path / "x",
        "--where",
        "trial=z",
    )
    assert ran.code == 2
    assert "no trial matches these options" in ran.err
