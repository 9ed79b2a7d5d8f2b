// Appended to a page of `burstc explore` by run_browser.py: works it as a reader would and leaves what it finds as JSON.
addEventListener("load", () => {
  const found = {width: innerWidth, page: document.documentElement.scrollWidth, errors: window.errors};
  const table = byId("layouts"), column = n => [...table.tBodies[0].rows].map(row => row.cells[n].textContent);
  const heads = [...table.tHead.rows[0].cells];
  found.sorted = heads.map((head, n) => {
    const button = head.querySelector("button");
    button.focus();
    const focused = document.activeElement === button;
    document.activeElement.click();
    const up = column(n), says = head.getAttribute("aria-sort");
    document.activeElement.click();
    return {head: head.textContent, focused, up, says, down: column(n), then: head.getAttribute("aria-sort"),
            others: heads.filter(h => h !== head && h.hasAttribute("aria-sort")).length};
  });
  const words = row => [...row.cells].map(cell => cell.textContent).join(" "), box = byId("filter");
  found.filtered = ["zigzag", "ZIGZAG ring", "no such layout", ""].map(text => {
    box.value = text;
    box.dispatchEvent(new Event("input"));
    const rows = all("table.layouts tbody tr");
    return {text, shown: rows.filter(row => !row.hidden).map(words), hidden: rows.filter(row => row.hidden).map(words),
            says: byId("shown").textContent};
  });
  found.folded = all("details.failures").map(d => ({open: d.open, what: d.querySelector("summary").textContent, rows: d.querySelectorAll("tbody tr").length}));
  found.two = ["two-masks", "two-layouts"].map(id => {
    const section = byId(id), selects = all("select", section);
    const titles = () => all(".two > div", section).map(d => d.querySelector("svg .b")?.textContent), first = titles();
    selects[1].selectedIndex = selects[1].length - 1;
    selects[1].dispatchEvent(new Event("change"));
    const lines = all("tr", section).filter(tr => tr.parentNode.id === "differences");
    return {hidden: section.hidden, names: [...selects[0].options].map(o => o.textContent), first, titles: titles(),
            lines: lines.map(tr => [...tr.cells].map(c => c.textContent)), marked: lines.map(tr => tr.cells[1].className)};
  });
  all("details").forEach(d => d.open = true);
  const wide = e => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX !== "auto";
  found.cut = all("body *").filter(e => !e.closest("svg") && e.offsetParent && (e.getBoundingClientRect().right > innerWidth + 1 || (e.matches("td,th,pre,p,dd") && wide(e)))).map(e => e.outerHTML.slice(0, 120));
  const lines = e => {
    const range = document.createRange();
    range.selectNodeContents(e.querySelector("button") || e);
    return new Set([...range.getClientRects()].map(r => r.bottom)).size;
  };
  found.broken = all("#layouts th, #layouts td:not(.why)").filter(e => (!e.textContent.includes(" ") || /^[\d.]+ \w+$/.test(e.textContent)) && lines(e) > 1).map(e => e.textContent);
  found.drawn = all("svg").filter(e => e.getBoundingClientRect().right > innerWidth + 1).length;
  found.colours = [getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color];
  found.opened = document.documentElement.scrollWidth;
  document.body.replaceChildren(Object.assign(document.createElement("pre"), {id: "found", textContent: JSON.stringify(found)}));
});
