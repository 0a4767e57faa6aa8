// Texts that lie over one another, and whether the page is wider than the window.
() => {
  const boxes = [];
  const walker = document.createTreeWalker(document.querySelector("body"), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode;
    const parent = node.parentElement;
    if (!node.data.trim() || parent.closest(".unseen, .skip, option, select")) continue;
    if (!parent.checkVisibility({ contentVisibilityAuto: true })) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const box of range.getClientRects()) {
      if (box.width > 1 && box.height > 1) boxes.push([box, node.data.trim().slice(0, 40)]);
    }
  }
  const over = [];
  boxes.forEach(([one, text], at) => {
    for (const [two, other] of boxes.slice(at + 1)) {
      const width = Math.min(one.right, two.right) - Math.max(one.left, two.left);
      const height = Math.min(one.bottom, two.bottom) - Math.max(one.top, two.top);
      // Lines of text stand close: their boxes may touch.
      if (width > 2 && height > Math.min(one.height, two.height) * 0.35) over.push([text, other]);
    }
  });
  const cut = boxes.filter(([box]) => box.right > innerWidth + 1 || box.left < -1).map(([, text]) => text);
  return { over, cut, texts: boxes.length, wide: document.documentElement.scrollWidth - innerWidth };
}
