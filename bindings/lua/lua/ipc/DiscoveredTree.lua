--- Nodes whose program has a place to leave an address: node 1 calls publish(host, port), the others query() until it answers.

local raise = require 'syncline.raise'
local trees = require 'syncline.trees'
raise.mark()

return function(nodeIndex, numNodes, nodeHost, nodePort, publish, query)
   if numNodes == 1 then return require('ipc.NullTree')() end
   raise.expect(publish, 'function', 'DiscoveredTree(…, publish, query)')
   raise.expect(query, 'function', 'DiscoveredTree(…, publish, query)')
   return trees.of(trees.call.discovered(nodeIndex, numNodes, nodeHost or '127.0.0.1', nodePort or 0, publish, query, nil, nil))
end
