--- Nodes of one host that know a process id in common, by default that of their parent.

local raise = require 'syncline.raise'
local trees = require 'syncline.trees'
raise.mark()

return function(nodeIndex, numNodes, ppid)
   raise.whole(nodeIndex, 'LocalhostTree(nodeIndex, numNodes)')
   raise.whole(numNodes, 'LocalhostTree(nodeIndex, numNodes)')
   ppid = tonumber(ppid) or ppid -- programs that were told it on their command line pass it on as text
   return trees.of(trees.call.localhost(nodeIndex, numNodes, ppid, nil, nil))
end
