-- Builds the Lua modules from the project's folder: cd bindings/lua && luarocks make
rockspec_format = '3.0'
package = 'syncline'
version = '0.1.0-1'
source = { url = 'git+file://.' }
description = {
   summary = 'Keeps the parameters of one model the same in many processes',
   detailed = 'Multiverso (multiverso) and torch-ipc (libipc, ipc.*) for Lua 5.1, LuaJIT and 5.4, on one Rust core.',
   license = 'MIT OR Apache-2.0',
}
dependencies = { 'lua >= 5.1, < 5.5' }
build = {
   type = 'make',
   build_variables = { LUA = '$(LUA)' },
   install_variables = { LUA = '$(LUA)', LUADIR = '$(LUADIR)', LIBDIR = '$(LIBDIR)' },
}
