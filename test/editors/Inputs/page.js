// page.js FOLDER PROGRAM DIMS TARGET: the sections that the page would show.
"use strict";
const fs = require("fs");
const { load } = require(fs.realpathSync(`${process.argv[2]}/page.js`));

async function main() {
  const [folder, program, dims, target] = process.argv.slice(2);
  const compile = await load(fs.readFileSync(`${folder}/attnc.wasm`));
  const text = fs.readFileSync(program, "utf8");
  const broken = await compile("attention f(", dims, target);
  console.log(broken.diagnostics.split("\n")[0]);
  const r = await compile(text, dims, target);
  console.log(r.formatted === text ? "canonical" : "not canonical");
  console.log(r.explained);
  console.log(r.diagnostics.trim() || "no diagnostics");
  fs.writeFileSync(process.argv[6], r.picture);
}

main();
