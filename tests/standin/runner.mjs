// Judges answers in Pyodide: node runner.mjs PYODIDE PACKAGES PROJECT KIND
const [pyodide, packages, project, kind] = process.argv.slice(2);
const { loadPyodide } = await import(`${pyodide}/pyodide.mjs`);
const python = await loadPyodide({ env: { TWELVE_PROGRESS: "", HOME: "/home/pyodide" } });
python.mountNodeFS("/project", project);
// The folder of packages, so that an error points to a line of the answer.
python.mountNodeFS(python.runPython("import site; site.getsitepackages()[0]"), packages);
python.runPython(`
import sys
sys.path[:0] = ["/project/browser", "/project/src", "/project"]
from tests.standin.answers import main
main("${kind}")
`);
