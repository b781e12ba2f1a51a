// The Language Server Protocol over a child's standard streams: messages, answers
// to requests, texts of documents. Knows nothing of VS Code.
"use strict";
const { spawn } = require("child_process");

class Client {
  // handlers: by method, of notifications and requests of the server; `gone`
  // is called where the server ends by itself.
  constructor(command, args, options, handlers, gone) {
    this.handlers = handlers;
    this.waiting = new Map();
    this.next = 1;
    this.rest = Buffer.alloc(0);
    this.ended = this.stopping = false;
    this.child = spawn(command, args, options);
    const end = (why) => {
      if (this.ended) return;
      this.ended = true;
      for (const w of this.waiting.values()) w.reject(new Error(why));
      this.waiting.clear();
      if (!this.stopping) gone(why);
    };
    this.child.on("error", (e) => end(`${command}: ${e.message}`));
    this.child.on("exit", (code) => end(`${command} ended with ${code}`));
    this.child.stdin.on("error", () => {});
    this.child.stdout.on("data", (data) => this.read(data));
  }

  read(data) {
    this.rest = Buffer.concat([this.rest, data]);
    for (;;) {
      const head = this.rest.indexOf("\r\n\r\n");
      if (head < 0) return;
      const m = /Content-Length: *(\d+)/i.exec(
        this.rest.toString("latin1", 0, head));
      const end = head + 4 + (m ? Number(m[1]) : 0);
      if (this.rest.length < end) return;
      const body = this.rest.toString("utf8", head + 4, end);
      this.rest = this.rest.subarray(end);
      if (m) this.take(JSON.parse(body));
    }
  }

  async take(message) {
    if (!message.method) {
      const w = this.waiting.get(message.id);
      this.waiting.delete(message.id);
      if (!w) return;
      if (message.error) w.reject(new Error(message.error.message));
      else w.resolve(message.result);
      return;
    }
    const handler = this.handlers[message.method];
    const result = handler ? await handler(message.params) : null;
    if (message.id !== undefined)
      this.send({ id: message.id, result: result === undefined ? null
                                                               : result });
  }

  send(message) {
    if (this.ended) return;
    const body = JSON.stringify({ jsonrpc: "2.0", ...message });
    this.child.stdin.write(
      `Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
  }

  notify(method, params) {
    this.send({ method, params });
  }

  // token: of VS Code, for cancelling.
  request(method, params, token) {
    if (this.ended) return Promise.reject(new Error("the server is gone"));
    const id = this.next++;
    this.send({ id, method, params });
    if (token)
      token.onCancellationRequested(
        () => this.notify("$/cancelRequest", { id }));
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject });
    });
  }

  async stop() {
    if (this.ended || this.stopping) return;
    const done = new Promise((resolve) => this.child.on("exit", resolve));
    this.stopping = true;
    try {
      await this.request("shutdown");
    } finally {
      this.notify("exit");
      await done;
    }
  }
}

module.exports = { Client };
