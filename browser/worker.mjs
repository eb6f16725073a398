// Run Python in its own thread, so the page can stop an answer that never returns.
import { loadPyodide } from "./pyodide/pyodide.mjs";

// Count the loaded bytes: Pyodide fetches its files through this function.
const fetched = self.fetch;
let loaded = 0;
self.fetch = async (...request) => {
  const response = await fetched(...request);
  const count = new TransformStream({
    transform(chunk, out) {
      loaded += chunk.length;
      postMessage({ loaded });
      out.enqueue(chunk);
    },
  });
  return new Response(response.body.pipeThrough(count), response);
};

const bytes = async (name) => {
  const response = await self.fetch(new URL(name, import.meta.url));
  if (!response.ok) throw new Error(`${name}: ${response.status}`);
  return response.arrayBuffer();
};

const start = async () => {
  const [python, course, wheels] = await Promise.all([
    loadPyodide({ indexURL: new URL("pyodide/", import.meta.url).href }),
    bytes("course.zip"),
    bytes("wheels.json").then((text) => JSON.parse(new TextDecoder().decode(text))),
  ]);
  for (const wheel of wheels) await python.loadPackage(new URL(wheel, import.meta.url).href);
  // Unpack into site-packages, so an error points to a line of the answer.
  python.unpackArchive(course, "zip", { extractDir: python.runPython("import site; site.getsitepackages()[0]") });
  const judge = python.pyimport("judge");
  postMessage({ ready: true });
  return judge;
};

const started = start();
started.catch((error) => postMessage({ failed: error.message }));
self.onmessage = async ({ data }) => {
  const judge = await started;
  const { key, call } = data;
  try {
    postMessage({ ...JSON.parse(judge[call](JSON.stringify(data))), key, call });
  } catch (error) {
    postMessage({ crashed: error.message, key }); // too deep a recursion, or out of memory
  }
};
