// The page of a trial that has no trace yet: asks for itself until there is one.

const PAUSE = 1000;

async function wait() {
  for (;;) {
    await new Promise((done) => setTimeout(done, PAUSE));
    if (document.hidden) continue;
    const response = await fetch(location.href, { cache: "no-store" }).catch(() => null);
    if (response?.ok) return location.reload();
  }
}

wait();
