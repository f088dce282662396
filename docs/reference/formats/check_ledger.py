import base64, hashlib, json, re, sys
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
sha, read = lambda data: hashlib.sha256(data).digest(), lambda path: open(path, "rb").read()
unbase = lambda text: next(d for d in [base64.b64decode(text)] if base64.b64encode(d).decode() == text)
verify = lambda key, signature, text: Ed25519PublicKey.from_public_bytes(key[1:]).verify(signature, text)
def root(nodes):
    while len(nodes) > 1:
        pairs = [sha(b"\1" + a + b) for a, b in zip(nodes[::2], nodes[1::2])]
        nodes = pairs + nodes[2 * len(pairs):]
    return nodes[0]
ledger, lines, number, torn = sys.argv[1], [], 0, b""
while not torn:
    try: *whole, torn = read(f"{ledger}/entries/{number:06}.jsonl").split(b"\n")
    except FileNotFoundError: break
    lines, number = lines + whole, number + 1
lines = lines[:int(read(f"{ledger}/checkpoint").split(b"\n")[1])]
entries = [json.loads(line) for line in lines]
leaves = [bytes.fromhex(e["withheld"]) if "withheld" in e else sha(b"\0" + line) for e, line in zip(entries, lines)]
told, keys, trials = [e for e in entries if e.get("kind") == "withhold"], [], {}
gone = {(*list(t["subject"].values())[:2], sha256) for t in told if t["subject"] for sha256 in t["artifacts"]}
for n, (e, line) in enumerate(zip(entries, lines)):
    assert e["seq"] == n, f"entry {n} says that it is another"
    if "withheld" in e:
        assert line.rstrip(b" ") == b'{"withheld":"%s","seq":%d}' % (leaves[n].hex().encode(), n), f"entry {n}"
        assert (n, e["withheld"]) in [(t["entry"], t["leaf"]) for t in told], f"entry {n} was taken out"
        for t in [t for t in told if t["entry"] == n and t["subject"]]:
            assert trials.setdefault(tuple(t["subject"].values())[:2], n) == n, f"entry {n}: a trial twice"
    elif e["kind"] == "trial":
        name = e["record"]["experiment_id"], e["record"]["trial_id"]
        assert all(re.fullmatch("[A-Za-z0-9][A-Za-z0-9._-]{0,199}", each) for each in name), f"entry {n}: no id"
        assert trials.setdefault(name, n) == n, f"entries {trials[name]} and {n} are the same trial"
    elif e["kind"] == "key":
        if keys:
            assert bytes.fromhex(e["root"]) == root(leaves[:n]), f"entry {n}: a key of another log"
            verify(keys[-1][2], unbase(e["signature"]), f"proctor-handover-2\n{e['origin']}\n{n}\n{e['root']}\n{e['key']}".encode())
        keys.append((n, e["key"].split("+")[0], unbase(e["key"].split("+", 2)[2])))
        assert len({k[2] for k in keys}) == len(keys), f"entry {n}: a key that was replaced"
    named = {(e["record"]["experiment_id"], e["record"]["trial_id"], f["sha256"]) for f in e.get("evidence", [])}
    for _, _, sha256 in named - gone: read(f"{ledger}/artifacts/sha256/{sha256[:2]}/{sha256}.zst")
for note in [f"{ledger}/checkpoint", *sys.argv[2:]]:
    body, _, signatures = read(note).decode().partition("\n\n")
    (origin, size, stated), (*signatures, end) = body.split("\n"), signatures.split("\n")
    assert origin == entries[0]["origin"] and int(size) <= len(leaves), f"{note}: another log, or a part of it"
    assert unbase(stated) == root(leaves[:int(size)]), f"{note}: other entries were signed"
    assert {s[:2] for s in signatures} == {"— "} and not end, f"{note}: bytes that mean nothing"
    _, name, key = [k for k in keys if k[0] < int(size)][-1]
    signed = [unbase(s.split(" ")[2]) for s in signatures if s.split(" ")[1] == name]
    verify(key, [s[4:] for s in signed if s[:4] == sha(f"{name}\n".encode() + key)[:4]][0], f"{body}\n".encode())
print(f"{len(leaves)} entries, signed by {entries[0]['key']} and those that it named")
