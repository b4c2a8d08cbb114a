--- A tree whose node 1 passes a server and whose other nodes pass clients connected to it, over which they find each other.

local raise = require 'syncline.raise'
local trees = require 'syncline.trees'
raise.mark()

-- Node 1 asks every client for its wish and answers with its number and where the nodes meet.
local function introduce(server, numNodes)
   return function(host, port)
      local wishes, taken = {}, {}
      server:clients(numNodes - 1, function(client)
         local wish = client:recv().node or false
         wishes[#wishes + 1] = wish
         if wish then taken[wish] = true end
         client:id(#wishes)
      end)
      local free = 2
      server:clients(function(client)
         local node = wishes[client:id()]
         if not node then
            while taken[free] do free = free + 1 end
            node, taken[free] = free, true
         end
         client:send({ node = node, host = host, port = port })
      end)
   end
end

--- `base` is how many branches a node has. Clients whose `nodeIndex` is nil are numbered as they come. Without server and
-- client the nodes are processes of this host with one parent. Shapes are chosen by what links cost; a `buildTree` is not asked.
return function(nodeIndex, numNodes, base, server, client, host, port)
   raise.whole(numNodes, 'Tree(nodeIndex, numNodes, …)')
   if base ~= nil then raise.whole(base, 'Tree(…, base, …)') end
   if numNodes == 1 then return require('ipc.NullTree')() end
   host, port = host or '127.0.0.1', port or 0
   if server then
      return trees.of(trees.call.discovered(1, numNodes, host, port, introduce(server, numNodes), function() end, base, nil))
   end
   if client then
      client:send({ node = nodeIndex or false })
      local answer = client:recv()
      local function query() return answer.host, answer.port end
      return trees.of(trees.call.discovered(answer.node, numNodes, host, port, function() end, query, base, nil))
   end
   raise.whole(nodeIndex, 'Tree(nodeIndex, numNodes, …)')
   return trees.of(trees.call.localhost(nodeIndex, numNodes, nil, base, nil))
end
