--- Nodes that were all told where node 1 listens.

local raise = require 'syncline.raise'
local trees = require 'syncline.trees'
raise.mark()

return function(nodeIndex, numNodes, nodeHost, nodePort, rootHost, rootPort)
   if numNodes == 1 then return require('ipc.NullTree')() end
   return trees.of(trees.call.fixed(nodeIndex, numNodes, nodeHost, nodePort or 0, rootHost, rootPort, nil))
end
