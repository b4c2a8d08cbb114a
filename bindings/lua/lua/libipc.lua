--- torch-ipc's module of primitives: `local ipc = require 'libipc'`.
--
-- Servers and clients prove a token to each other: `SYNCLINE_TOKEN`, or what all programs of one user on one host know. Messages
-- are plain data of any size; functions never travel between processes. What threads of one process share is in `syncline.threads`,
-- what has to do with other programs in `syncline.programs`.

local native = require 'syncline_native'
local raise = require 'syncline.raise'
local adapter = require 'syncline.torch'
raise.mark()

local call = raise.family(native, '')

-- What a client and a server's client have in common.
local function talking(prefix)
   local send, recv, recv_async = call[prefix .. '_send'], call[prefix .. '_recv'], call[prefix .. '_recv_async']
   return {
      send = function(self, value) send(self, value) end,
      --- The next message; a tensor is received in place.
      recv = function(self, target)
         if target == nil then return recv(self, nil) end
         local place, back = adapter.target(target)
         recv(self, place)
         return back()
      end,
      --- The next message if it is completely here, else nothing.
      recvAsync = function(self)
         local here, value = recv_async(self)
         if here then return value end
      end,
      close = function(self) call[prefix .. '_close'](self) end,
   }
end

local Client, Peer, Server = talking('client'), talking('peer'), {}

function Client:netStats() return call.client_stats(self) end

--- The client's number, by which clients are ordered; sets it if one is given.
function Peer:id(id) return call.peer_id(self, id) end
--- The client's tag; sets it if one is given.
function Peer:tag(tag) return call.peer_tag(self, tag) end
--- Where it comes from.
function Peer:address() return call.peer_address(self) end

local client_class, peer_class, server_class = { __index = Client }, { __index = Peer }, { __index = Server }
require('syncline.objects').classes.client = client_class

local function with_class(f)
   return function(peer) f(raise.adopt(peer, peer_class)) end
end

-- Servers that have let clients in, which only `clients` does; the first `recvAny` of another lets in the first that comes.
local met = setmetatable({}, { __mode = 'k' })

--- `clients(n, f)`: waits until n clients in total are connected, then calls f for every one, ascending by id.
-- `clients(f, tag, invert)`: no waiting; only those with the tag, descending if invert is 1. Both return how many there were.
function Server:clients(a, b, c)
   if type(a) == 'function' then
      return call.server_clients_with(self, with_class(a), b, c ~= nil and c ~= false and c ~= 0)
   end
   raise.whole(a, 'clients(n, f)')
   raise.expect(b, 'function', 'clients(n, f)')
   local f = with_class(b)
   return call.server_clients(self, a, function(peer)
      met[self] = true
      f(peer)
   end)
end

function Server:broadcast(value, tag) call.server_broadcast(self, value, tag) end

--- The next message of any client with this tag, and whose it is.
function Server:recvAny(tag)
   if not met[self] then self:clients(1, function() end) end
   local value, peer = call.server_recv_any(self, tag)
   return value, raise.adopt(peer, peer_class)
end

function Server:close() call.server_close(self) end
function Server:netStats() return call.server_stats(self) end

local ipc = {}
for _, part in ipairs { 'syncline.threads', 'syncline.programs' } do
   for name, f in pairs(require(part)) do ipc[name] = f end
end

--- A server and the port it listens at. `options` may name `token` and `timeout`.
function ipc.server(host, port, options)
   options = raise.options(options, 'server(host, port, options)', 'token', 'timeout')
   if type(host) == 'number' then host, port = nil, host end
   if host ~= nil then raise.expect(host, 'string', 'server(host, port)') end
   if port ~= nil then raise.whole(port, 'server(host, port)') end
   local server, chosen = call.server(host or '127.0.0.1', port or 0, options.token, options.timeout)
   return raise.adopt(server, server_class), chosen
end

--- A client of the server at host and port, or at a port of this host. It is tried again for five minutes.
function ipc.client(host, port, options)
   if type(host) == 'number' then host, port, options = '127.0.0.1', host, port end
   options = raise.options(options, 'client(host, port, options)', 'token', 'timeout')
   raise.expect(host, 'string', 'client(host, port)')
   raise.whole(port, 'client(host, port)')
   return raise.adopt(call.client(host, port, options.token, options.timeout), client_class)
end

return ipc
