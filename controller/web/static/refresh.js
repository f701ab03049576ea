// Renews the page's content while it is visible, unless its reader types, selects text, or has switched it off.
"use strict";
(() => {
  const main = document.querySelector("main[data-refresh]");
  const renew = document.getElementById("renew");
  if (!main || !renew) return;
  const busy = () => {
    const selection = window.getSelection();
    return document.hidden || !renew.checked || main.contains(document.activeElement) && document.activeElement !== main
      || (selection !== null && !selection.isCollapsed);
  };
  const load = async () => {
    if (busy()) return;
    try {
      const answer = await fetch(window.location.href, { credentials: "same-origin" });
      if (!answer.ok || busy()) return;
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      const content = fresh.querySelector("main"), time = fresh.querySelector("footer time");
      if (!content) return;
      const open = [...main.querySelectorAll("details")].map((each) => each.open);
      main.replaceChildren(...content.childNodes);
      main.querySelectorAll("details").forEach((each, at) => { each.open = open[at] === true; });
      document.querySelector("footer time").textContent = time.textContent;
    } catch { /* the next attempt may succeed; the time in the footer shows the age */ }
  };
  window.setInterval(load, Number(main.dataset.refresh) * 1000);
})();
