// How well each text on the page stands out from what is behind it, as WCAG measures it.
() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (color) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return a < 255 ? null : [r, g, b];
  };
  const light = (color) => color.map((c) => c / 255)
    .map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const found = rgb(getComputedStyle(at).backgroundColor);
      if (found) return found;
    }
    return [255, 255, 255];
  };
  const faint = (node) => node.closest(".is-around") !== null;
  return [...document.querySelectorAll("body *")]
    .filter((node) => [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim()))
    .filter((node) => node.offsetParent !== null && !faint(node))
    .map((node) => {
      const pair = [light(rgb(getComputedStyle(node).color)), light(behind(node))].sort((a, b) => b - a);
      return [`${node.tagName}.${node.className}: ${node.textContent.slice(0, 30)}`, (pair[0] + 0.05) / (pair[1] + 0.05)];
    });
}
