-- Rank 1 is killed; the others, which wait for it, must know who it was. `run` starts it as a job of three.

local mv = require 'multiverso'
local syncline = require 'syncline'
local ipc = require 'libipc'

mv.init()
local handler = mv.ArrayTableHandler:new(4)
local pid = syncline.DoubleTensor({ mv.worker_id() == 1 and ipc.getpid() or 0 })
syncline.aggregate(pid, 'sum')
handler:add({ 1, 1, 1, 1 }, true)
mv.barrier()
if mv.worker_id() == 1 then
   os.execute('kill -9 ' .. ipc.getpid())
   ipc.channel():read() -- for ever, should nobody kill it
end
local ok, words = pcall(mv.barrier)
local facts = syncline.last_error()

local function check(truth, what)
   if truth then return end
   io.stderr:write(('%s: %s; kind %s, rank %s, host %s, pid %s\n%s\n'):format(
      what, tostring(words), tostring(facts.kind), tostring(facts.rank), tostring(facts.host), tostring(facts.pid), tostring(facts.text)))
   os.exit(1)
end

local named = io.popen('hostname')
local host = named:read('*l')
named:close()
check(not ok and type(words) == 'string', 'an error that is a string')
check(words:find('lost.lua:', 1, true) and words:find('PeerLost', 1, true), 'the line of the call and the kind')
check(words:find('rank 1', 1, true), 'who it was, in words')
check(facts.kind == 'PeerLost' and facts.rank == 1, 'the kind and the rank')
check(facts.pid == pid[1], 'the process')
check(facts.host == host, 'the host')
check(mv.last_error().pid == facts.pid, 'the same from both modules')
print(('PeerLost of rank 1 seen by %d'):format(mv.worker_id()))
io.stdout:flush()
syncline.abort('rank 1 is gone')
os.exit(0)
