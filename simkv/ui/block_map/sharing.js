// What leaves the map: a picture, a link.
function savePicture(canvas, step) {
  canvas.toBlob((blob) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = `block-map-step-${step}.png`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
}

async function copyLink(button, step, block) {
  const url = new URL(window.location.href);
  url.searchParams.set("step", step);
  if (block >= 0) url.searchParams.set("block", block);
  try {
    await navigator.clipboard.writeText(url.href);
    button.textContent = "Link copied";
  } catch {
    window.prompt("Copy this link:", url.href); // the clipboard needs https or localhost
  }
  setTimeout(() => (button.textContent = "Copy link"), 1500);
}
