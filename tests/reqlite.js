"use strict";
// Start reqlite on the port given. RethinkDB evaluates and writes a document in one step, reqlite in two: so take one
// query at a time. And answer the wait for unanswered queries with one value, which the driver expects at its close.
const Connection = require("reqlite/lib/connection.js");
const Query = require("reqlite/lib/query.js");
const Server = require("reqlite/lib/index.js");

const send = Connection.prototype.send;
Connection.prototype.send = function (token, answer) {
  if (answer && answer.t === 1 && Array.isArray(answer.r) && answer.r.length === 0) answer.r = [null];
  return send.call(this, token, answer);
};

const run = Query.prototype.run;
let last = Promise.resolve();
Query.prototype.run = function (query) {
  const mine = last.then(() => run.call(this, query));
  last = mine.then(() => {}, () => {});
  return mine;
};

new Server({ "driver-port": Number(process.argv[2]) });
