"""Maps, channels and queues typed into the cells of a notebook, which a real kernel runs."""

from __future__ import annotations

from conftest import Ended, Program, Stage, environment
from frameworks import python_with

# Runs the cells as `jupyter execute` does, in a kernel of this interpreter, and prints what they print.
NOTEBOOK = '''
import sys
import nbformat
from nbclient import NotebookClient
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpec

class Manager(AsyncKernelManager):
    @property
    def kernel_spec(self):
        return KernelSpec(argv=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"], language="python")

cells = CELLS
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
NotebookClient(notebook, timeout=120, kernel_manager_class=Manager).execute()
for cell in notebook.cells:
    for output in cell.outputs:
        print(output.get("text", ""), end="")
'''

CELLS = [
    "import numpy as np\nfrom syncline import ipc\nfactor = 3",
    "def scaled(number):\n    return factor * number",
    "def work(base, id):\n    return base + scaled(id)",
    "print('processes', ipc.map(3, work, 10).join())",
    "factor = 5\nprint('again', ipc.map(6, work, 10, processes=2).join())",
    "print('threads', ipc.map(3, work, 10, processes=False).join())",
    """
def total(channel, id):
    return float(sum(array.sum() for array in channel))

channel = ipc.channel(capacity=4)
workers = ipc.map(2, total, channel)
for _ in range(10):
    channel.write(np.ones(50_000))
channel.close()
print('arrays', sum(workers.join()))
""",
    """
def answer(queue, id):
    for question in queue:
        queue.write(question ** 2)

queue, _ = ipc.workqueue()
workers = ipc.map(2, answer, queue)
queue.write(*range(5))
queue.drain()
print('queue', sorted(queue.read() for _ in range(5)))
queue.close()
workers.join()
""",
    """
def fails(id):
    raise ValueError(f'cell {id}')

try:
    ipc.map(2, fails).join()
except ipc.MapError as error:
    print('errors', [str(each) for each in error.errors])
""",
]


def test_a_kernel_runs_the_cells_of_a_notebook(stage: Stage) -> None:
    python = python_with("nbclient", "ipykernel", "numpy")
    script = stage.folder / "notebook.py"
    script.write_text(NOTEBOOK.replace("CELLS", repr(CELLS)))
    program = Program([python, str(script)], environment({"JUPYTER_PLATFORM_DIRS": "1", "IPYTHONDIR": str(stage.folder)}))
    stage.programs.append(program)
    ended: Ended = program.end(150.0)
    assert ended.status == 0, ended
    said = ended.out.splitlines()
    assert said == [
        "processes [13, 16, 19]",
        "again [15, 20, 25, 30, 35, 40]",
        "threads [15, 20, 25]",
        "arrays 500000.0",
        "queue [0, 1, 4, 9, 16]",
        "errors ['cell 1', 'cell 2']",
    ], ended
