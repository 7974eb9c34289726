/* Runs before the first paint, so that the page does not change its colours while it loads. */
try {
  const theme = localStorage.getItem("aioinformer-theme");
  if (theme) document.documentElement.dataset.theme = theme;
} catch {
  // No storage: the theme of the system.
}
