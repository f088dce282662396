// The page of an experiment while it runs: told of a change, it fetches itself again and puts what
// is new in place. Without script the page is whole; it is then only as old as its last loading.
"use strict";

(() => {
  const live = document.getElementById("live");
  const said = document.getElementById("connection");
  if (!live || !live.dataset.events || !window.EventSource) return;

  const PAUSE = 1000;
  let source = null;
  let since = live.dataset.events;
  let isFetching = false;
  let isStale = false;
  let hasEnded = false;

  const say = (text, isLost = false) => {
    if (said.textContent !== text) said.textContent = text;
    said.classList.toggle("lost", isLost);
  };

  // Where the reader was: the same control or the same link gets the focus again.
  const placeOf = (element) => {
    if (!element || !live.contains(element)) return null;
    if (element.name) return `[name="${CSS.escape(element.name)}"]`;
    const href = element.getAttribute("href");
    return href ? `a[href="${CSS.escape(href)}"]` : null;
  };

  const show = (text) => {
    const fresh = new DOMParser().parseFromString(text, "text/html");
    const found = fresh.getElementById("live");
    if (!found) return;
    const form = live.querySelector("form.filters");
    const place = placeOf(document.activeElement);
    live.replaceChildren(...found.childNodes);
    // What somebody is typing stays.
    const made = live.querySelector("form.filters");
    if (form && made) made.replaceWith(form);
    if (place) live.querySelector(place)?.focus({ preventScroll: true });
    const banner = fresh.querySelector(".damaged");
    document.querySelector(".damaged")?.remove();
    if (banner) document.getElementById("main").before(banner);
    since = found.dataset.events;
  };

  const update = async () => {
    if (isFetching) {
      isStale = true;
      return;
    }
    isFetching = true;
    try {
      do {
        isStale = false;
        const response = await fetch(location.href, { cache: "no-store" });
        if (response.ok) show(await response.text());
        else say(`This page is no longer available (${response.status}).`, true);
        await new Promise((done) => setTimeout(done, PAUSE));
      } while (isStale);
    } catch {
      say("Connection lost; this page may be outdated. Reconnecting…", true);
    } finally {
      isFetching = false;
    }
  };

  const listen = () => {
    if (source || hasEnded) return;
    source = new EventSource(since);
    source.onopen = () => say("Live");
    source.onerror = () => {
      say("Connection lost; this page may be outdated. Reconnecting…", true);
      // A server that refuses closes it for good; the page asks again after a while.
      if (source && source.readyState === EventSource.CLOSED) {
        source = null;
        setTimeout(listen, 5 * PAUSE);
      }
    };
    source.addEventListener("change", update);
    source.addEventListener("end", () => {
      hasEnded = true;
      source.close();
      source = null;
      say("");
    });
  };

  const leave = () => {
    source?.close();
    source = null;
  };

  // A browser has few connections to one place: a page that nobody sees takes none.
  document.addEventListener("visibilitychange", () => (document.hidden ? leave() : listen()));
  window.addEventListener("pagehide", leave);
  if (!document.hidden) listen();
})();
