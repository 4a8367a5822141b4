"""The page's one style sheet: calm, readable on small screens and on paper, light and dark by the reader's choice."""

__all__ = ["STYLE"]

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #fcfcfa; --ink: #23272c; --muted: #5c646d; --line: #dfe1e0; --early: #f0ede2; --link: #28598c;
  --choice-0: #5c646d; --choice-1: #28598c; --choice-2: #a94a20; --choice-3: #37714a;
  --choice-4: #73529e; --choice-5: #84640c; --choice-6: #14727b; --choice-7: #a03d66;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --paper: #16191d; --ink: #e3e5e7; --muted: #a2abb4; --line: #343a41; --early: #22262b; --link: #8ab8ea;
    --choice-0: #a2abb4; --choice-1: #7fb2e8; --choice-2: #ee9a6c; --choice-3: #85c698;
    --choice-4: #bda2e6; --choice-5: #d8b45a; --choice-6: #66c3cb; --choice-7: #ea93b6;
  }
}
* { box-sizing: border-box; }
html { background: var(--paper); color: var(--ink); font: 16px/1.6 system-ui, sans-serif; }
body { margin: 0 auto; max-width: 52rem; padding: 3.5rem 1.5rem 5rem; overflow-wrap: break-word; }
h1 { font-size: 1.9rem; line-height: 1.25; font-weight: 650; margin: 0 0 .5rem; letter-spacing: -.01em; }
h2 { font-size: 1.3rem; line-height: 1.3; font-weight: 650; margin: 4rem 0 .5rem; }
h3 { font-size: 1rem; font-weight: 650; margin: 2.25rem 0 .25rem; }
p { margin: .5rem 0 1rem; max-width: 42rem; }
a { color: var(--link); }
.lede, nav, footer { color: var(--muted); }
nav ul { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; list-style: none; padding: 0; margin: 1.25rem 0 0; }
nav { font-size: .9375rem; }
.skip { position: absolute; left: -99rem; }
.skip:focus { left: 1rem; top: 1rem; background: var(--paper); padding: .5rem 1rem; }
:focus-visible { outline: 2px solid var(--link); outline-offset: 3px; }
.missing { color: var(--muted); border-left: 3px solid var(--line); padding-left: 1rem; }
figure { margin: 1.25rem 0 2rem; }
figcaption, caption { color: var(--muted); font-size: .875rem; line-height: 1.5; }
figcaption { max-width: 42rem; margin-top: .5rem; }
.scroll { overflow-x: auto; }
.plot { display: block; width: 100%; min-width: 34rem; height: auto; }
.plot * { stroke-linejoin: round; stroke-linecap: butt; }
.plot text { fill: var(--ink); font-family: inherit; }
table { border-collapse: collapse; width: 100%; margin: 1.25rem 0 2rem; font-size: .9375rem; line-height: 1.4; }
caption { text-align: left; padding-bottom: .75rem; }
th, td { padding: .5rem 1rem .5rem 0; text-align: left; border-bottom: 1px solid var(--line); vertical-align: middle; }
thead th { color: var(--muted); font-weight: 500; font-size: .875rem; vertical-align: bottom; }
tbody th { font-weight: 500; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
th:last-child, td:last-child { padding-right: 0; }
.small { display: block; color: var(--muted); font-size: .8125rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: 1rem 1.25rem; }
.tiles { margin: 1.75rem 0 .5rem; }
.tiles dt { color: var(--muted); font-size: .875rem; }
.tiles dd { margin: 0; font-size: 1.625rem; line-height: 1.3; font-variant-numeric: tabular-nums; }
.tiles .small { line-height: 1.35; }
.gallery { display: grid; grid-template-columns: repeat(auto-fill, minmax(5.5rem, 1fr)); gap: 1.25rem .75rem; }
.gallery { list-style: none; margin: 1rem 0 2rem; padding: 0; }
.gallery li { font-size: .9375rem; line-height: 1.35; }
.gallery li.text { grid-column: span 2; }
.gallery img { display: block; width: 4.5rem; height: 4.5rem; object-fit: contain; margin-bottom: .375rem; }
.gallery img { image-rendering: pixelated; background: var(--early); border-radius: 3px; }
.gallery q { display: block; quotes: none; color: var(--ink); font-size: .875rem; margin-bottom: .25rem; }
.gallery b { font-weight: 600; }
footer { margin-top: 4rem; padding-top: 1rem; border-top: 1px solid var(--line); font-size: .875rem; }
@page { margin: 16mm 14mm; }
@media print {
  :root { --paper: #fff; }
  html { font-size: 11pt; }
  body { max-width: none; padding: 0; }
  nav, .skip { display: none; }
  h2, h3 { break-after: avoid; }
  figure, tr, li { break-inside: avoid; }
  * { print-color-adjust: exact; }
  .scroll { overflow: visible; }
  .plot { min-width: 0; }
}
"""
