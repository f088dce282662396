"""Commands that refuse what they are given, or find a fault in it or nothing: name, command.

`broken/` of the workspace has the inputs; `tests.pinned.workspace` makes them.
"""

REFUSALS = """
unknown-command: judge
unknown-option: score jobs/nightly --wish
no-job: score jobs/none
no-trial: show nobody/nothing
no-experiment: report nobody

run-nothing: run
run-no-path: run -p none -a nop -e null
run-empty: run -p broken/empty -a nop -e null
run-bad-task: run -p broken/task -a nop -e null --no-ledger -o {scratch}
run-no-agent: run -p tasks/binary -e null --no-ledger -o {scratch}
run-bad-agent: run -p tasks/binary -a nobody -e null --no-ledger -o {scratch}
run-bad-environment: run -p tasks/binary -a nop -e moon --no-ledger -o {scratch}
run-bad-config: run -c broken/truncated.json
run-no-match: run -p tasks/binary -i nothing -a nop -e null --no-ledger -o {scratch}
run-no-template: run -p tasks/binary -a nop -e null --no-ledger --ve X='${{NOT_SET}}' -o {scratch}
run-exists: run -p tasks/errors -a nop -e null --no-ledger -o jobs --job-name nightly
resume-none: resume jobs/none
resume-empty: resume broken/empty
resume-no-tasks: resume jobs/nightly --dry-run
resume-truncated: resume broken/truncated-job
view-none: view jobs/none
view-empty: view broken/empty
view-two: view jobs/nightly --ledger ledger
show-none: show jobs/none
show-empty-trace: show broken/empty.jsonl
show-truncated-trace: show broken/truncated.jsonl
show-truncated-trial: show broken/truncated-job/answer__86Asrh6
show-ambiguous: show a
show-no-step: show traces/passes.jsonl --step 999
show-no-evidence: show 4 --evidence nothing.txt
show-bad-ledger: show 4 --ledger broken/empty
compare-none: compare nobody nightly
compare-no-group: compare 14-two-models nightly --a model-z
compare-empty: compare broken/empty jobs/nightly
init-file: init broken/empty.json

task-new-exists: task new binary -o tasks
task-new-name: task new ../x -o {scratch}
task-try-none: task try tasks/none
task-try-broken: task try broken/task
task-digest-none: task digest none
task-digest-broken: task digest broken/empty
dataset-list-none: dataset list --registry-path none
dataset-list-truncated: dataset list --registry-path broken/truncated.json
dataset-fetch-unknown: dataset fetch nothing@1 --registry-path broken/registry.json
image-pull-name: image pull Not/A:Name:x
image-pull-offline: image pull alpine --offline
image-import-none: image import x none
image-import-truncated: image import x broken/bundle.tar.zst
image-import-empty: image import x broken/empty
clean-option: clean --everything

score-empty: score broken/empty
score-truncated: score broken/truncated-job
score-profile: score jobs/nightly --profile other
outcome-nothing: outcome
outcome-none: outcome jobs/none
outcome-empty: outcome broken/empty
outcome-no-line: outcome --stdout broken/edited.txt --exit-code 1
outcome-two: outcome jobs/nightly --reason x
check-none: check none
check-nothing: check
check-empty: check broken/empty.json
check-empty-directory: check broken/empty
check-truncated: check broken/truncated.json
check-truncated-trace: check broken/truncated.jsonl
check-truncated-bundle: check broken/bundle.tar.zst
check-edited-claim: check broken/edited.claim.json --key key.pub
check-other-key: check broken/claim.json --key broken/other.pub
check-bad-key: check broken/claim.json --key broken/edited.txt
check-edited-ledger: check broken/edited-ledger
check-policy: check jobs/nightly --policy nothing
check-policy-file: check jobs/nightly --policy broken/truncated.json
gate-nothing: gate --min-mean 0.5
gate-none: gate nobody --min-mean 0.5
gate-empty: gate broken/empty --min-mean 0.5
gate-no-limit: gate jobs/nightly
gate-not-a-number: gate jobs/nightly --min-mean high
gate-miss: gate jobs/nightly --min-mean 0.9
gate-errors: gate jobs/06-errors-oracle-k1 --max-errors 1
gate-unlike: gate jobs/06-errors-oracle-k1 --against jobs/nightly --max-drop 0.1
gate-edited: gate jobs/nightly --min-mean 0.1 --against broken/edited-job --check-evidence
gate-reward-key: gate prime --min-mean 0.1
audit-none: audit jobs/none
audit-empty: audit broken/empty
audit-edited: audit broken/edited-job
audit-truncated: audit broken/truncated-job
audit-against-none: audit jobs/nightly --against jobs/none

board-none: board --dataset nothing
board-at: board --dataset fixtures@1 --at 999
board-policy: board --dataset fixtures@1 --policy nothing
board-empty: board --ledger broken/empty
board-two: board --dataset fixtures@1 --csv --markdown
report-nothing: report
report-empty: report broken/empty
report-two: report nightly -o {scratch}/a.html --site {scratch}/b
search-nothing: search
search-quote: search '"never'
search-field: search role:
search-no-match: search zebra
summary-none: trace summary nobody
summary-empty: trace summary broken/empty
summary-broken: trace summary broken/truncated.jsonl
classify-none: trace classify nobody
classify-judge: trace classify nightly --judge model
convert-none: trace convert none --to atif
convert-truncated: trace convert broken/truncated.jsonl --to atif -o {scratch}/t.json
convert-exists: trace convert traces/passes.jsonl --to atif -o traces/fails.jsonl
convert-form: trace convert traces/passes.jsonl --to csv
writer-exists: trace writer -o broken/edited.txt

init-exists: ledger init --ledger ledger
init-in-use: ledger init --ledger broken/empty.json
seal-none: ledger seal jobs/none --ledger {copy}
seal-other: ledger seal traces/passes.jsonl --ledger {copy}
seal-edited: ledger seal broken/record.json --ledger {copy}
seal-truncated: ledger seal broken/truncated.json --ledger {copy}
seal-secret: ledger seal records/g1-partial.json --secret-env NOT_SET --ledger {copy}
seal-key: ledger seal records/g1-partial.json --key broken/other.pub --ledger {copy}
list-none: ledger list --ledger none
list-empty: ledger list --ledger broken/empty
list-file: ledger list --ledger broken/empty.json
list-status: ledger list --where status=good
list-reward: ledger list --where reward=much
list-column: ledger list --columns colour
list-no-match: ledger list --experiment nobody
verify-edited: ledger verify --ledger broken/edited-ledger
verify-truncated: ledger verify --ledger broken/truncated-ledger
verify-none: ledger verify --ledger none
verify-since: ledger verify --since broken/edited.txt
verify-other-key: ledger verify --key broken/other.pub
prove-none: ledger prove 999
prove-nothing: ledger prove
prove-exists: ledger prove 4 -o key.pub
prove-since: ledger prove --since broken/edited.txt
claim-none: ledger claim --experiment nobody -o {scratch}/claim.json
claim-exists: ledger claim --experiment nightly -o key.pub
checkpoint-exists: ledger checkpoint -o key.pub
key-none: ledger key --ledger none
review-none: ledger review nobody --verdict pass --reviewer ana --ledger {copy}
review-verdict: ledger review 4 --verdict good --reviewer ana --ledger {copy}
review-entry: ledger review 0 --verdict pass --reviewer ana --ledger {copy}
withhold-none: ledger withhold nobody --reason leak --author ana --ledger {copy}
withhold-reason: ledger withhold 4 --ledger {copy}
withhold-path: ledger withhold 4 --evidence nothing --reason leak --author ana --ledger {copy}
publish-target: ledger publish s3://
publish-itself: ledger publish ledger
serve-none: serve --ledger none
serve-public: serve --ledger {copy} --host 0.0.0.0
serve-certificate: serve --ledger {copy} --tls-certificate none
import-harbor-none: import harbor jobs/none --ledger {new}
import-harbor-empty: import harbor broken/empty --ledger {new}
import-harbor-truncated: import harbor broken/truncated-job --ledger {new}
import-traces-none: import traces none --model m --task t --ledger {new}
import-traces-empty: import traces broken/empty --model m --task t --ledger {new}
import-inspect-none: import inspect none.eval --ledger {new}
import-prime-nothing: import prime --ledger {new}
import-prime-truncated: import prime --evaluation-json broken/truncated.json --samples-json samples.json --ledger {new}
import-prime-one: import-prime-eval --samples-json samples.json --ledger {new}
import-aec-none: import aec-bench none --ledger {new}
import-aec-empty: import aec-bench broken/empty --ledger {new}
import-bundle-none: import bundle none --ledger {new}
import-bundle-truncated: import bundle broken/bundle.tar.zst --ledger {new}
import-bundle-other: import bundle records/g1x.json --ledger {new}
import-no-ledger: import harbor jobs/nightly --ledger broken/empty.json
export-form: export --format csv -o {scratch}/x
export-exists: export --experiment nightly -o key.pub
export-no-match: export --experiment nobody -o {scratch}/x.tar.zst
"""  # noqa: E501 - one line for each


def list_refusals() -> list[tuple[str, str]]:
    """Name and command of each."""
    lines = [line for line in REFUSALS.splitlines() if line]
    return [(name, command) for name, _, command in (line.partition(": ") for line in lines)]
