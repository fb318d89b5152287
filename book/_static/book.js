// The book's own script: it keeps search working on pages opened from disk.
"use strict";

(() => {
  function searchFromDisk() {
    // A page opened from disk may not fetch its neighbours, so results come without an extract.
    if (location.protocol === "file:" && typeof DOCUMENTATION_OPTIONS !== "undefined") {
      DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
    }
  }

  searchFromDisk();
})();
