/* A browser starts no Worker for a page of a file. The search runs in a hidden frame instead. */
"use strict"

class IFrameWorker extends EventTarget {
  constructor(url) {
    super()
    this.frame = document.createElement("iframe")
    this.frame.hidden = true
    document.body.append(this.frame)
    const inside = this.frame.contentWindow
    inside.postMessage = data => {
      const event = new MessageEvent("message", { data })
      this.dispatchEvent(event)
      if (this.onmessage) this.onmessage(event)
    }
    const script = inside.document.createElement("script")
    script.src = new URL(url, location.href)
    this.ready = new Promise(resolve => (script.onload = resolve))
    inside.document.body.append(script)
  }

  postMessage(data) {
    const event = () => new MessageEvent("message", { data })
    this.ready.then(() => this.frame.contentWindow.dispatchEvent(event()))
  }

  terminate() {
    this.frame.remove()
  }
}

if (location.protocol === "file:") window.Worker = window.IFrameWorker = IFrameWorker
