"""What one visit to a page of the book finds.

`visit` opens a page once, looks at it in light and dark, wide, narrow and on
paper, and returns a list of findings for each name in CHECKS. Empty lists are
what the tests ask for.
"""

import re
from itertools import pairwise

import pypdfium2
from axe_playwright_python.base import AXE_SCRIPT

from browser import PHONE, WIDE, listen, look, settle

# A4 less the margins of `@page` in custom.css, at 96 pixels an inch.
PAPER = {"width": round((210 - 2 * 15) / 25.4 * 96), "height": 1000}
CHECKS = (
    "network",
    "console",
    "formulas",
    "neighbours",
    "keyboard",
    "white boxes",
    "narrow",
    "scrolling by keyboard",
    "paper layout",
    "PDF",
    "axe",
)


def visit(context, site, name, order):
    """Findings of one page: a dict from each of CHECKS to a list of lines.

    `order` holds the addresses of the page before and the page after, or None.
    """
    page = context.new_page()
    network, console = listen(page, site)
    found = {"network": network, "console": console}
    page.emulate_media(color_scheme="light")
    page.goto(f"{site}/{name}.html")
    settle(page)
    found["formulas"] = page.evaluate(FORMULAS)
    found["neighbours"] = neighbours(page, order)
    look(page, PAPER, media="print")
    found["paper layout"] = page.evaluate(TOO_WIDE, "print")
    found["PDF"] = printed(page)
    look(page, PHONE)
    found["narrow"] = page.evaluate(TOO_WIDE, "screen")
    found["scrolling by keyboard"] = page.evaluate(SCROLLERS)
    # From here on formulas are not looked at.
    page.evaluate(THIN)
    page.evaluate(AXE_SCRIPT)
    found["axe"] = axe(page)
    look(page, WIDE)
    found["keyboard"] = keyboard(page)
    found["axe"] += axe(page)
    look(page, WIDE, "dark")
    found["white boxes"] = page.evaluate(WHITE_BOXES)
    found["axe"] += axe(page, "dark")
    page.close()
    return found


FORMULAS = r"""() => {
  const found = [];
  for (const formula of document.querySelectorAll('.math'))
    if (!formula.querySelector('mjx-container'))
      found.push('not typeset: ' + formula.textContent.trim());
  for (const error of document.querySelectorAll(
      'mjx-merror, [data-mjx-error]'))
    found.push('error: ' + (error.getAttribute('data-mjx-error')
      || error.title || error.textContent));
  for (const name of document.querySelectorAll(
      'mjx-mtext[style*="color: red"]'))
    found.push('unknown command: ' + (name.closest('.math')
      ?.querySelector('mjx-assistive-mml')?.textContent || ''));
  return found;
}"""


def neighbours(page, order):
    """The previous and the next link lead to the neighbours in the toc."""
    found = []
    sides = {"left-prev": order[0], "right-next": order[1]}
    for name, target in sides.items():
        links = page.eval_on_selector_all(
            f".prev-next-area a.{name}",
            "links => links.map(e => [e.href, e.innerText.trim()])",
        )
        addresses = [link for link, text in links if text]
        wanted = [] if target is None else [target]
        if addresses != wanted:
            found.append(f"{name}: {addresses}, expected {wanted}")
    return found


def keyboard(page):
    """Tab reaches the skip link, then controls; the focus can be seen."""
    found = []
    page.keyboard.press("Tab")
    page.wait_for_timeout(250)  # it slides in
    skip = page.evaluate(FOCUSED)
    if not skip["visible"] or not re.search("skip", skip["text"], re.I):
        found.append(f"the first Tab reaches {skip}")
    elif not skip["leads"]:
        found.append("the skip link leads nowhere")
    for _ in range(3):
        page.keyboard.press("Tab")
        focused = page.evaluate(FOCUSED)
        if not focused["visible"]:
            found.append(f"Tab reaches what cannot be seen: {focused}")
    # After a key, a focus set by a script shows as one set by the keyboard.
    return found + page.evaluate(FOCUS_SEEN)


FOCUSED = r"""() => {
  const e = document.activeElement, box = e.getBoundingClientRect();
  const link = e.getAttribute('href') || '';
  return {
    tag: e.tagName, text: (e.innerText || e.ariaLabel || '').trim(),
    leads: link.startsWith('#') && !!document.getElementById(link.slice(1)),
    visible: e !== document.body && box.width > 0 && box.height > 0
      && box.top >= 0 && box.left >= 0 && box.top < innerHeight
      && box.left < innerWidth,
  };
}"""

# What names an element in a finding.
LABEL = r"""
  const label = e => e.tagName.toLowerCase()
    + [...e.classList].map(c => '.' + c).join('')
    + ' "' + (e.textContent || e.alt || e.ariaLabel || '')
      .trim().slice(0, 50) + '"';
"""

FOCUS_SEEN = (
    "() => {"
    + LABEL
    + r"""
  const found = [];
  const able = 'a[href], button, input, select, textarea, summary, '
    + '[tabindex]:not([tabindex="-1"])';
  for (const e of document.querySelectorAll(able)) {
    if (!e.checkVisibility({visibilityProperty: true}) || e.disabled
        || e.tabIndex < 0) continue;
    e.focus({preventScroll: true});
    if (document.activeElement !== e) continue;
    const style = getComputedStyle(e);
    const ring = style.outlineStyle !== 'none'
      && parseFloat(style.outlineWidth) >= 1;
    if (!ring && style.boxShadow === 'none')
      found.push('no mark of the focus: ' + label(e));
  }
  document.activeElement.blur();
  return found;
}"""
)

WHITE_BOXES = (
    "() => {"
    + LABEL
    + r"""
  const found = [];
  const canvas = document.createElement('canvas');
  canvas.width = canvas.height = 32;
  const pen = canvas.getContext('2d', {willReadFrequently: true});
  const light = (r, g, b, a) => a > 128 && Math.min(r, g, b) > 190;
  const pixels = draw => {
    pen.clearRect(0, 0, 32, 32);
    draw();
    return pen.getImageData(0, 0, 32, 32).data;
  };
  const paint = color => {
    const d = pixels(() => {
      pen.fillStyle = color; pen.fillRect(0, 0, 32, 32); });
    return light(d[0], d[1], d[2], d[3]);
  };
  const known = {none: false};
  const isLight = color => known[color] ??= paint(color);
  for (const e of document.querySelectorAll('body, body *')) {
    if (e.closest('mjx-container')) continue;
    const style = getComputedStyle(e);
    const color = e.matches('rect, path, circle, ellipse, polygon')
      ? style.fill : style.backgroundColor;
    const picture = e.matches('img, canvas');
    if (!picture && !isLight(color)) continue;
    const box = e.getBoundingClientRect();
    if (box.width <= 40 || box.height <= 10 || !e.checkVisibility({
        visibilityProperty: true, opacityProperty: true})) continue;
    if (isLight(color)) found.push(`${color}: ` + label(e));
    if (!picture || e.naturalWidth === 0) continue;
    const data = pixels(() => pen.drawImage(e, 0, 0, 32, 32));
    let white = 0;
    for (let i = 0; i < data.length; i += 4)
      white += light(...data.slice(i, i + 4));
    if (white > 256) found.push('light picture: ' + label(e));
  }
  return found;
}"""
)

# On a screen what is too wide must scroll in a box of its own; formulas must
# not scroll. Paper cannot scroll, shows no fixed bar and folds nothing away.
TOO_WIDE = (
    "media => {"
    + LABEL
    + r"""
  const found = [], width = document.documentElement.clientWidth;
  const main = document.querySelector('article') || document.body;
  const paper = media === 'print';
  if (document.documentElement.scrollWidth > innerWidth)
    found.push('the page scrolls sideways: '
      + document.documentElement.scrollWidth);
  const scrolls = e => ['auto', 'scroll'].includes(
    getComputedStyle(e).overflowX);
  const inBox = e => {
    for (let p = e.parentElement; p && main.contains(p); p = p.parentElement)
      if (scrolls(p)) return true;
    return false;
  };
  const part = 'mjx-assistive-mml, mjx-container *, svg *, mark *';
  for (const e of main.querySelectorAll('*')) {
    if (e.matches(part)) continue;
    const box = e.getBoundingClientRect();
    if (!box.width || !box.height) continue;
    const wide = box.right > width + 1 || box.left < -1;
    if (wide && (paper || !inBox(e)))
      found.push(`reaches from ${Math.round(box.left)} to `
        + `${Math.round(box.right)} of ${width}: ` + label(e));
    const style = getComputedStyle(e);
    const over = e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 1
      && style.display !== 'inline';
    if (over && style.overflowX !== 'visible'
        && (paper || !scrolls(e)))
      found.push(`cut by ${e.scrollWidth - e.clientWidth} px: ` + label(e));
    if (over && scrolls(e) && e.matches('.math, mjx-container') && !paper)
      found.push(`scrolls by ${e.scrollWidth - e.clientWidth} px: `
        + label(e));
  }
  if (!paper) return found;
  for (const e of document.querySelectorAll('body *'))
    if (['fixed', 'sticky'].includes(getComputedStyle(e).position)
        && e.checkVisibility({visibilityProperty: true})
        && e.getBoundingClientRect().height > 0 && !main.contains(e))
      found.push('stays on every sheet: ' + label(e));
  for (const e of main.querySelectorAll('details'))
    if (!e.lastElementChild?.checkVisibility(
        {contentVisibilityAuto: true, visibilityProperty: true}))
      found.push('folded away: ' + label(e));
  for (const e of main.querySelectorAll('img, canvas, svg'))
    if (!e.checkVisibility()) found.push('not printed: ' + label(e));
  if (!main.checkVisibility()) found.push('the text is hidden');
  return found;
}"""
)

SCROLLERS = (
    "() => {"
    + LABEL
    + r"""
  const found = [], able = 'a[href], button, input, select, textarea, '
    + '[tabindex]:not([tabindex="-1"])';
  for (const e of document.querySelectorAll('body *')) {
    if (e.scrollWidth <= e.clientWidth + 1 || e.clientWidth < 2) continue;
    if (!['auto', 'scroll'].includes(getComputedStyle(e).overflowX)) continue;
    if (!e.checkVisibility({visibilityProperty: true})) continue;
    if (e.tabIndex < 0 && !e.querySelector(able))
      found.push('only a finger scrolls it: ' + label(e));
  }
  return found;
}"""
)


def squeeze(text):
    """Letters and digits alone: spaces and ligatures differ in a PDF."""
    text = text.replace("ﬁ", "fi").replace("ﬂ", "fl")
    return "".join(filter(str.isalnum, text))


def within(text, sheets):
    """Whether a sheet holds the text, or two that follow hold its parts."""
    return any(text in sheet for sheet in sheets) or any(
        text[:cut] in sheet and text[cut:] in after
        for sheet, after in pairwise(sheets)
        for cut in range(1, len(text))
    )


def printed(page):
    """The page as a PDF holds its headings, last words and figures."""
    found = []
    expected = page.evaluate(
        r"""() => {
      const main = document.querySelector('article') || document.body;
      const texts = s => [...main.querySelectorAll(s)].map(
        e => [...e.childNodes].filter(n => n.nodeType === 3 ||
          !n.matches('a.headerlink')).map(n => n.nodeType === 3 ||
          !n.querySelector('mjx-container') && !n.matches('mjx-container')
          ? n.textContent : ' \n').join(''));
      return {
        headings: texts('h1, h2, h3'), last: texts('p').slice(-1),
        figures: [...main.querySelectorAll('img, canvas')].filter(
          e => !/[.]svg$|^data:image.svg/.test(e.src)).length,
      };
    }"""
    )
    with pypdfium2.PdfDocument(page.pdf(format="A4")) as pdf:
        sheets = [sheet.get_textpage().get_text_bounded() for sheet in pdf]
        sheets = [squeeze(text) for text in sheets]
        figures = sum(
            1
            for sheet in pdf
            for _ in sheet.get_objects(
                filter=[pypdfium2.raw.FPDF_PAGEOBJ_IMAGE], max_depth=8
            )
        )
    for text in expected["headings"] + expected["last"]:
        for piece in text.split("\n"):  # formulas stand between the pieces
            if not within(squeeze(piece), sheets):
                found.append(f"not in the PDF: {piece!r}")
    if figures < expected["figures"]:
        found.append(f"{figures} of {expected['figures']} figures")
    return found


# axe looks at each piece of a formula and at each coloured word of the code. A
# formula has one colour, and one word of each colour in each kind of box will
# do.
THIN = r"""() => {
  for (const formula of document.querySelectorAll('mjx-container')) {
    formula.textContent = 'x';
    formula.removeAttribute('style');
  }
  const seen = new Set();
  for (const word of document.querySelectorAll('pre span')) {
    const box = word.closest('pre').parentElement.parentElement;
    const kind = box.className + '|' + word.className;
    if (word.className && seen.has(kind)) word.replaceWith(word.textContent);
    seen.add(kind);
  }
}"""

# Contrast takes nine tenths of axe's time, so one text is judged of those
# that share colour, size and ground.
AXE = r"""async colourAlone => {
  const options = {resultTypes: ['violations'], preload: false};
  const contrast = 'color-contrast';
  const ground = e => {
    for (; e; e = e.parentElement) {
      const {backgroundColor, backgroundImage} = getComputedStyle(e);
      if (backgroundColor !== 'rgba(0, 0, 0, 0)'
          || backgroundImage !== 'none')
        return backgroundColor + backgroundImage;
    }
  };
  const kinds = new Map();
  for (const e of document.querySelectorAll('body *')) {
    const text = e.matches('input, textarea') || [...e.childNodes].some(
      n => n.nodeType === 3 && n.data.trim());
    const box = e.getBoundingClientRect();
    if (!text || !box.width || !box.height) continue;
    const s = getComputedStyle(e);
    const kind = [s.color, s.fill, s.fontSize, s.fontWeight, s.opacity,
      e.closest('[class*=disabled]') !== null, ground(e)].join('|');
    if (!kinds.has(kind) && e.checkVisibility(
        {visibilityProperty: true, opacityProperty: true})) kinds.set(kind, e);
  }
  const runs = [await axe.run({include: [...kinds.values()]},
    {...options, runOnly: [contrast]})];
  if (!colourAlone) runs.push(await axe.run(document,
    {...options, rules: {[contrast]: {enabled: false}}}));
  return runs.flatMap(r => r.violations)
    .filter(v => ['serious', 'critical'].includes(v.impact))
    .flatMap(v => v.nodes.map(n => `${v.id}: ${n.target} `
      + `${n.html.slice(0, 120)} ${n.failureSummary}`.slice(0, 400)));
}"""


def axe(page, color="light"):
    """Serious and critical findings of axe-core; in the dark, of contrast."""
    where = f"{page.viewport_size['width']} {color}: "
    lines = page.evaluate(AXE, color == "dark")
    return [where + " ".join(line.split()) for line in lines]
