// Browsers start no worker from a file, so where a page is opened from a disk the search's worker runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      frame.contentDocument.open();
      frame.contentDocument.write("<body></body>");
      frame.contentDocument.close();
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.inside.importScripts = async (...scripts) => {
        for (const script of scripts) await this.load(script);
      };
      this.ready = this.load(url);
    }

    load(url) {
      return new Promise((resolve, reject) => {
        const script = this.inside.document.createElement("script");
        script.src = url;
        script.onload = resolve;
        script.onerror = reject;
        this.inside.document.body.append(script);
      });
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
