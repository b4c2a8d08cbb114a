-- ipc.SlurmTree, in processes that have a step's variables. (The real Slurm runs in the tests of the command.)

local harness = require 'harness'
local test, equal = harness.test, harness.equal

if arg[1] == 'task' then
   local tree = require 'ipc.SlurmTree'(arg[2], 2)
   local sum, contributors = tree.allReduce(tree.nodeIndex, function(a, b) return a + b end)
   print(tree.nodeIndex, tree.numNodes, tree.gpu, sum, contributors, tree.scatter('from ' .. tree.nodeIndex))
   tree.close()
   return
end

local ipc = require 'libipc'

-- Runs a step whose nodes have so many tasks each; what every task says.
local function step(id, tasks_per_node)
   local folder = os.tmpname()
   os.remove(folder)
   os.execute('mkdir -m 700 ' .. folder)
   local tasks, all = {}, 0
   for _, n in ipairs(tasks_per_node) do all = all + n end
   local rank = 0
   for node, n in ipairs(tasks_per_node) do
      for place = 0, n - 1 do
         local env = {
            'PATH=' .. os.getenv('PATH'), 'LUA_PATH=' .. package.path, 'LUA_CPATH=' .. package.cpath, 'HOME=' .. folder,
            'SLURM_JOB_ID=' .. id, 'SLURM_STEP_ID=0', 'SLURM_PROCID=' .. rank, 'SLURM_LOCALID=' .. place, 'SLURM_NODEID=' .. node - 1,
            'SLURM_NTASKS=' .. all, 'SLURM_STEP_NUM_TASKS=' .. all, 'SLURM_STEP_NUM_NODES=' .. #tasks_per_node,
            'SLURM_STEP_TASKS_PER_NODE=' .. table.concat(tasks_per_node, ','),
         }
         rank = rank + 1
         tasks[rank] = ipc.spawn { file = arg[-1], args = { arg[0], 'task', folder }, env = env }
      end
   end
   local said = {}
   for i, task in ipairs(tasks) do
      said[i] = task:stdout('*all')
      equal((task:wait()), 0)
   end
   os.execute('rm -r ' .. folder)
   return said
end

test('three tasks of one node', function()
   equal(step(4711, { 3 }), { '1\t3\t1\t6\t3\tfrom 1\n', '2\t3\t1\t6\t3\tfrom 1\n', '3\t3\t2\t6\t3\tfrom 1\n' })
end)

test('three tasks on two nodes, which the original links to a node that is not there', function()
   equal(step(4712, { 2, 1 }), { '1\t3\t1\t6\t3\tfrom 1\n', '2\t3\t1\t6\t3\tfrom 1\n', '3\t3\t1\t6\t3\tfrom 1\n' })
end)

test('a process in no step is a tree of one', function()
   local tree = require 'ipc.SlurmTree'()
   equal({ tree.numNodes, tree.allReduce(7, math.max) }, { 1, 7, 1 })
end)

harness.finish()
