"""The table of what is pinned: a command line or a page of the viewer in each row.

In a command, `{out}` is a new directory: every file that the command leaves there is pinned.
`{new}` is a new, empty ledger, and `{copy}` a copy of the stored one: the lines that the command
adds or changes are pinned. `{scratch}` is a new directory that is not looked at afterwards. What
commands refuse stands in `tests.pinned.refusals`.
"""

from dataclasses import dataclass

from tests.pinned.refusals import list_refusals
from tests.pinned.workspace import DATA, STORED

JOBS = sorted(path.name for data in (DATA / "harbor", STORED) for path in (data / "jobs").iterdir())
EXPERIMENTS = ("nightly", "candidate", "06-errors-oracle-k1", "14-two-models", "prime", "traces")


@dataclass(frozen=True)
class Case:
    """A command that prints facts, and where its outputs are kept."""

    name: str
    command: str
    has_json: bool = True
    """Whether the command has `--json`; otherwise its text is the only output."""
    has_text: bool = True
    """Whether the text is pinned: not where it tells durations, or only counts trials."""

    @property
    def has_facts(self) -> bool:
        """Whether more than words is pinned: Markdown and refusals are for people."""
        return "markdown" not in self.command and not self.name.startswith("refused/")


@dataclass(frozen=True)
class PageCase:
    """A page of the viewer."""

    name: str
    subject: str
    """`ledger`, or `jobs`: what the viewer shows."""
    route: str


def _for_each(names: tuple[str, ...] | list[str], rows: dict[str, str]) -> list[Case]:
    return [
        Case(f"{folder}/{name}", command.replace("NAME", name))
        for folder, command in rows.items()
        for name in names
    ]


_OF_JOBS = {
    "score-job": "score jobs/NAME --explain --certificate {out}/certificate.json",
    "audit-job": "audit jobs/NAME",
    "outcome-job": "outcome jobs/NAME",
    "report-job": "report jobs/NAME",
    "gate-job": "gate jobs/NAME --min-mean 0.5 --max-errors 1 --max-cost-usd 0.01 "
    "--require-complete --junit {out}/gate.xml",
    "policy-job": "check jobs/NAME --policy leaderboard",
    "summary-job": "trace summary jobs/NAME",
}
_IMPORTS = [
    Case(
        f"import-harbor/{job}",
        f"import harbor jobs/{job} --killed --ledger {{new}}",
        has_text=False,
    )
    for job in JOBS
]
_OF_EXPERIMENTS = {
    "report-experiment": "report NAME",
    "gate-experiment": "gate NAME --min-mean 0.5 --min-pass-rate 0.5 --max-errors 10% "
    "--min-trials 2 --check-evidence --junit {out}/gate.xml",
    "policy-experiment": "check NAME --policy leaderboard --ledger ledger --key key.pub "
    "--since older-checkpoint",
    "list-experiment": "ledger list --experiment NAME",
    "summary-experiment": "trace summary NAME",
    "classify-experiment": "trace classify NAME",
    "claim": "ledger claim --experiment NAME -o {out}/claim.json",
    "bundle": "export --experiment NAME -o {out}/bundle.tar.zst",
}
_EXPORTS = [
    Case(f"export/{form}-{name}", f"export --format {form} --experiment {name} -o {{out}}/export")
    for form in ("harbor", "aec-bench", "atif", "inspect", "parquet")
    for name in ("candidate", "14-two-models")
]
_REPORTS = [
    Case(f"report-file/{kind}", f"report 14-two-models -o {{out}}/report.{kind}")
    for kind in ("json", "html")
]
_MARKDOWN = [
    Case("markdown/gate", "gate jobs/14-two-models --min-mean 0.5 --markdown -"),
    Case("markdown/report", "report 14-two-models --format markdown"),
    Case("markdown/board", "board --dataset fixtures@1 --markdown"),
]
_DATASETS = ("fixtures@1", "fixtures@2", "forged@1", "aec@1.2", "multistep")
_BOARDS = [
    Case("board/datasets", "board"),
    Case("board/earlier", "board --dataset fixtures@1 --at 44"),
    Case("board/policy", "board --dataset forged@1 --policy leaderboard"),
    Case("board/trials", "board --dataset fixtures@1 --trials 1.2"),
    Case("board/csv", "board --dataset fixtures@1 --csv", has_json=False),
    *_for_each(_DATASETS, {"board": "board --dataset NAME"}),
]
_READING = [
    Case("ledger/list", "ledger list"),
    Case("ledger/list-csv", "ledger list --csv", has_json=False),
    Case("ledger/list-jsonl", "ledger list --jsonl", has_json=False),
    Case("ledger/list-dataset", "ledger list --where dataset=forged@1 --where reward=0.5.."),
    Case("ledger/list-superseded", "ledger list --where status=superseded"),
    Case("ledger/verify", "ledger verify --since older-checkpoint --key key.pub"),
    Case("ledger/checkpoint", "ledger checkpoint"),
    Case("ledger/public-key", "ledger checkpoint --public-key"),
    Case("ledger/key", "ledger key"),
    Case("ledger/prove-trial", "ledger prove 4 -o {out}/inclusion.proof.json"),
    Case("ledger/prove-withheld", "ledger prove 50 -o -"),
    Case("ledger/prove-growth", "ledger prove --since older-checkpoint -o {out}/growth.proof.json"),
    Case("ledger/check", "check ledger --key key.pub"),
    Case("search/words", "search tests"),
    Case("search/trials", "search role:tool_call exit:0 --trials"),
    Case("show/sealed", "show 4"),
    Case("show/reviewed", "show 14-two-models/oracle-wrong__7i5F8dS"),
    Case("show/rescored", "show 14-two-models/pass-simple__ebbsYgh"),
    Case("show/superseded", "show 14-two-models/pass-two__QcDQNkc"),
    Case("show/withheld", "show 14-two-models/pass-simple__cFDoYwN"),
    Case("show/withheld-evidence", "show 14-two-models/oracle-wrong__w3bzNjV"),
    Case("show/multi-step", "show 10-multistep-oracle-mounted/ms-mean__A9zULhJ"),
    Case("show/changes", "show 4 --changes"),
    Case("show/raw", "show 4 --raw", has_json=False),
    Case("show/evidence", "show 4 --evidence verifier/reward.txt", has_json=False),
    Case("show/job", "show jobs/06-errors-oracle-k1"),
    Case("show/job-failed", "show jobs/nightly --failed"),
    Case("show/job-cancelled", "show jobs/30-cancelled-before-resume"),
    *(
        Case(f"show/entry-{seq}", f"show {seq}")
        for seq in (0, 1, 43, 46, 48, 49, 50, 51, 52, 54, 55)
    ),
]
_WRITING = [
    Case("write/init", "ledger init --origin example.org/new --ledger {out}/ledger"),
    Case("write/review", "ledger review 4 --verdict fail --reviewer ben --note x --ledger {copy}"),
    Case("write/withhold", "ledger withhold 4 --reason leak --author ana --ledger {copy}"),
    Case("write/withhold-evidence",
         "ledger withhold 7 --evidence trial.log --reason leak --author ana --ledger {copy}"),
    Case("write/seal-record", "ledger seal records/g1-partial.json --ledger {copy}"),
    Case("write/seal-trial", "ledger seal jobs/01-binary-oracle-k1/pass-simple__iSXvMm8 "
         "--experiment again --ledger {copy}"),
    Case("import/prime", "import prime --evaluation-json evaluation.json "
         "--samples-json samples.json --ledger {new}"),
    Case("import/traces", "import traces traces --model acme/m --task fix-bug "
         "--when 2026-01-02T03:04:05Z --ledger {new}"),
    Case("import/aec-bench", "import aec-bench records/g2 --ledger {new}"),
]  # fmt: skip
_TRACES = [
    *_for_each(
        ["passes.jsonl", "fails.jsonl", "trajectory.json"],
        {
            "trace-show": "show traces/NAME",
            "trace-check": "check traces/NAME",
            "trace-summary": "trace summary traces/NAME",
            "trace-classify": "trace classify traces/NAME",
            "trace-to-atif": "trace convert traces/NAME --to atif -o {out}/trajectory.json",
            "trace-to-trajectory": "trace convert traces/NAME --to trajectory -o {out}/t.jsonl",
        },
    ),
    Case("show-job/trial", "show jobs/04-binary-scripted-k5/pass-two__8K7Bk9j"),
    Case("show-job/follow", "show jobs/nightly/answer__FU7dBUa -f", has_json=False),
    Case("show-job/changes", "show jobs/nightly/answer__FU7dBUa --changes"),
    Case("classify-job/scripted", "trace classify jobs/04-binary-scripted-k5"),
]
_COMPARISONS = [
    Case("compare/refused", "compare nightly candidate"),
    Case("compare/experiments", "compare nightly candidate --allow-unlike"),
    Case("compare/models", "compare 14-two-models 14-two-models --a model-x --b model-y"),
    Case(
        "compare/jobs", "compare jobs/03-binary-oracle-k5 jobs/04-binary-scripted-k5 --allow-unlike"
    ),
    Case("compare/audit", "audit jobs/03-binary-oracle-k5 --against jobs/04-binary-scripted-k5"),
    Case("compare/gate", "gate candidate --against nightly --max-drop 0.1"),
    Case("compare/profile", "score jobs/29-passk-20 --profile harbor-0.25"),
    Case("compare/mixed", "score jobs/01-binary-oracle-k1 jobs/02-binary-nop-k1"),
]
_REST = [
    Case(
        "check/records", "check records/g1-complete.json records/g1-partial.json records/g1x.json"
    ),
    Case("task/lint", "task lint tasks/binary tasks/multistep"),
    Case("check/hollow", "check records/g1-complete-hollow.json"),
    Case("task/digest", "task digest tasks/binary tasks/multistep --files"),
    Case("run/dry", "run -p tasks/binary -a nop -e null -k 2 --job-name pinned --dry-run"),
    Case(
        "run/null",
        "run -p tasks/binary -i pass-two -a nop -e null --job-name pinned -q --no-ledger "
        "-o {out}/jobs",
        has_text=False,
    ),
    Case("outcome/reason", "outcome --reason 'Agent timed out after 30 seconds'"),
    Case("task/new", "task new mine -o {out}", has_text=False),
    Case("init/project", "init {scratch}/project"),
    Case("dataset/list", "dataset list --registry-path broken/registry.json"),
    Case("image/list", "image list"),
    Case("outcome/codes", "outcome --codes"),
    Case("outcome/line", "outcome --stdout broken/line.txt --exit-code 0"),
    Case("outcome/contradicted", "outcome --stdout broken/line.txt --exit-code 1"),
    Case("trace/writer", "trace writer -o {scratch}/writer.py"),
    Case("write/publish", "ledger publish {scratch}/site"),
    Case("write/seal-again", "ledger seal jobs/nightly/proof__gZWiesk --ledger {copy}"),
    Case("import/bundle", "import bundle frozen/candidate.bundle.tar.zst --ledger {new}"),
    Case("check/frozen", "check frozen/nightly.claim.json.zst frozen/inclusion.proof.json "
         "frozen/cosigned-checkpoint frozen/candidate.bundle.tar.zst --key key.pub"),
]  # fmt: skip
_REFUSALS = [Case(f"refused/{name}", command, has_json=False) for name, command in list_refusals()]
CASES = [
    *_for_each(JOBS, _OF_JOBS),
    *_IMPORTS,
    *_for_each(EXPERIMENTS, _OF_EXPERIMENTS),
    *_EXPORTS,
    *_REPORTS,
    *_MARKDOWN,
    *_BOARDS,
    *_READING,
    *_WRITING,
    *_TRACES,
    *_COMPARISONS,
    *_REST,
    *_REFUSALS,
]
PAGES = [
    PageCase("ledger-home", "ledger", "/"),
    PageCase("ledger-log", "ledger", "/ledger"),
    PageCase("ledger-entry", "ledger", "/ledger/entries/43"),
    PageCase("ledger-search", "ledger", "/search?q=tests"),
    PageCase("boards", "ledger", "/boards"),
    PageCase("board", "ledger", "/boards/fixtures@1"),
    PageCase("compare", "ledger", "/compare?a=nightly&b=candidate"),
    PageCase("trial-sealed", "ledger", "/trials/14-two-models/oracle-wrong__7i5F8dS"),
    PageCase("missing", "ledger", "/trials/nobody/nothing"),
    *(PageCase(f"experiment-{name}", "ledger", f"/experiments/{name}") for name in EXPERIMENTS),
    PageCase("jobs-home", "jobs", "/"),
    *(PageCase(f"job-{name}", "jobs", f"/experiments/{name}") for name in JOBS),
]
