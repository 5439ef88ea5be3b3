/* A page opened as a file may not start a worker, and the search is one. This runs it in a hidden frame instead. */
"use strict";

class FrameWorker extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.append(frame);
    const inside = frame.contentWindow;
    inside.postMessage = (data) => {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      if (this.onmessage) this.onmessage(event);
    };
    inside.importScripts = (...urls) =>
      urls.reduce((before, each) => before.then(() => this.load(inside, each)), Promise.resolve());
    this.frame = frame;
    this.ready = this.load(inside, url);
  }

  load(inside, url) {
    return new Promise((done, failed) => {
      const script = inside.document.createElement("script");
      script.src = new URL(url, location.href).href;
      script.onload = done;
      script.onerror = failed;
      inside.document.body.append(script);
    });
  }

  postMessage(data) {
    this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
  }

  terminate() {
    this.frame.remove();
  }
}

if (location.protocol === "file:") window.Worker = FrameWorker;
