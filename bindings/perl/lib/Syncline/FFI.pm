package Syncline::FFI;

# The C interface: finds libsyncline, knows its functions, and turns a status into an exception. No other file says `attach`.

use strict;
use warnings;

use File::Basename qw(dirname);
use File::Spec ();
use FFI::Platypus 2.00;
use Syncline::Error ();

our $VERSION = '0.1.0';

# The interface that this file was written for; a library may know more, never less.
use constant ABI => 2;
use constant INTERRUPTED => 10;

# The texts of `dtype` in the order of syncline_dtype.
our @DTYPES = qw(float32 float64 float16 bfloat16 int8 int16 int32 int64 uint8);
our %DTYPE  = map { $DTYPES[$_] => $_ } 0 .. $#DTYPES;
our %OP     = (sum => 0, prod => 1, min => 2, max => 3, mean => 4, and => 5, or => 6);

our $LIBRARY = find_library();
my $ffi = FFI::Platypus->new(api => 2, lib => $LIBRARY);

# Structures are packed by their users and passed as texts: `pack` makes one in a fraction of the time that a record takes.
my ($handle, $status, $struct, $place) = ('opaque', 'sint32', 'string', 'opaque*');

$ffi->attach(@$_) for (
    [[syncline_abi_version     => 'abi_version']    => []               => 'uint32'],
    [[syncline_version         => 'version']        => []               => 'string'],
    [[syncline_status_name     => 'status_name']    => ['sint32']       => 'string'],
    [[syncline_last_error      => 'last_error']     => []               => 'string'],
    [[syncline_last_error_rank => 'last_rank']      => []               => 'sint64'],
    [[syncline_last_error_pid  => 'last_pid']       => []               => 'sint64'],
    [[syncline_last_error_host => 'last_host']      => []               => 'string'],
    [[syncline_here            => 'here']           => ['string', 'sint32'] => 'void'],

    [[syncline_open            => 'open_session']   => ['sint32', 'double', $place] => $status],
    [[syncline_close           => 'close_session']  => [$handle]            => $status],
    [[syncline_abort           => 'abort_session']  => [$handle, 'string']  => $status],
    [[syncline_barrier         => 'barrier']        => [$handle]            => $status],
    [[syncline_stay_for_workers => 'stay_for_workers'] => [$handle]         => $status],
    [[syncline_where           => 'place']          => [$handle, $struct]   => $status],
    [[syncline_aggregate       => 'aggregate']      => [$handle, $struct, 'size_t', 'sint32', 'sint32'] => $status],
    [[syncline_save            => 'save']           => [$handle, 'string']  => $status],
    [[syncline_load            => 'load']           => [$handle, 'string']  => $status],
    [[syncline_tree_of         => 'tree_of']        => [$handle, $place]    => $status],
    [[syncline_tree_all_reduce => 'all_reduce']     => [$handle, $struct, 'size_t', 'sint32', 'sint32', 'uint32*'] => $status],
    [[syncline_tree_close      => 'tree_close']     => [$handle]            => $status],

    [[syncline_array_create    => 'array_create']   => [$handle, 'uint64', $struct, $struct, 'size_t', $place] => $status],
    [[syncline_matrix_create   => 'matrix_create']  => [$handle, 'uint64', 'uint64', $struct, $struct, 'size_t', $place] => $status],
    [[syncline_table_free      => 'table_free']     => [$handle] => $status],
    [[syncline_table_add       => 'table_add']      => [$handle, $struct, 'size_t', $struct, 'sint32'] => $status],
    [[syncline_table_get       => 'table_get']      => [$handle, $struct, 'size_t'] => $status],
    [[syncline_table_add_get   => 'table_add_get']  => [$handle, $struct, $struct, 'size_t', $struct] => $status],
    [[syncline_table_add_rows  => 'table_add_rows'] => [$handle, $struct, 'size_t', $struct, 'size_t', $struct, 'sint32'] => $status],
    [[syncline_table_get_rows  => 'table_get_rows'] => [$handle, $struct, 'size_t', $struct, 'size_t'] => $status],
    [[syncline_table_name      => 'table_name']     => [$handle, $struct, 'size_t'] => $status],

    [[syncline_kvstore_create  => 'kv_create']      => [$handle, 'string', $place] => $status],
    [[syncline_kvstore_free    => 'kv_free']        => [$handle] => $status],
    [[syncline_kvstore_type    => 'kv_type']        => [$handle, $struct, 'size_t'] => $status],
    [[syncline_kvstore_where   => 'kv_where']       => [$handle, 'sint32*', 'sint32*'] => $status],
    [[syncline_kvstore_num_dead_node => 'kv_dead']  => [$handle, 'sint32*'] => $status],
    [[syncline_kvstore_is_capable => 'kv_capable']  => [$handle, 'string', 'sint32*'] => $status],
    [[syncline_kvstore_init    => 'kv_init']        => [$handle, $struct, $struct, 'size_t'] => $status],
    [[syncline_kvstore_push    => 'kv_push']        => [$handle, $struct, $struct, 'size_t'] => $status],
    [[syncline_kvstore_push_async => 'kv_push_async'] => [$handle, $struct, $struct, 'size_t', 'sint32', 'opaque'] => $status],
    [[syncline_kvstore_pull    => 'kv_pull']        => [$handle, $struct, $struct, 'size_t', 'sint32'] => $status],
    [[syncline_kvstore_pushpull  => 'kv_pushpull']  => [$handle, $struct, $struct, 'size_t', $struct, $struct, 'size_t'] => $status],
    [[syncline_kvstore_broadcast => 'kv_broadcast'] => [$handle, $struct, $struct, 'size_t', $struct, $struct, 'size_t'] => $status],
    [[syncline_kvstore_row_sparse_pull => 'kv_row_sparse_pull'] => [$handle, $struct, 'size_t'] => $status],
    [[syncline_kvstore_set_optimizer => 'kv_set_optimizer'] => [$handle, 'string', 'string', 'sint32'] => $status],
    [[syncline_kvstore_set_learning_rate => 'kv_set_learning_rate'] => [$handle, 'double'] => $status],
    [[syncline_kvstore_set_gradient_compression => 'kv_compress'] => [$handle, $struct, 'size_t'] => $status],
    [[syncline_kvstore_set_updater => 'kv_set_updater'] => [$handle, '(opaque,opaque,opaque,opaque)->sint32', 'opaque'] => $status],
    [[syncline_kvstore_save_optimizer_states => 'kv_save'] => [$handle, 'string', 'sint32'] => $status],
    [[syncline_kvstore_load_optimizer_states => 'kv_load'] => [$handle, 'string'] => $status],
    [[syncline_kvstore_barrier => 'kv_barrier']     => [$handle] => $status],
    [[syncline_kvstore_flush   => 'kv_flush']       => [$handle] => $status],
    [[syncline_kvstore_send_command_to_servers => 'kv_command'] => [$handle, 'sint64', $struct, 'size_t', $struct, 'size_t'] => $status],
    [[syncline_optimizer_options => 'optimizer_options'] => ['string', 'string', $struct, 'size_t', 'size_t*'] => $status],

    [[syncline_rows_create     => 'rows_create']    => ['sint32', $struct, 'size_t', $struct, 'size_t', $struct, 'size_t', $place] => $status],
    [[syncline_rows_count      => 'rows_count']     => [$handle, 'size_t*', 'size_t*'] => $status],
    [[syncline_rows_read       => 'rows_read']      => [$handle, $struct, 'size_t', $struct, 'size_t'] => $status],
    [[syncline_rows_free       => 'rows_free']      => [$handle] => $status],

    [[syncline_set_going_on    => 'set_going_on']   => ['()->sint32'] => 'void'],
);

die 'libsyncline at ' . $LIBRARY . ' speaks version ' . abi_version() . ' of its interface, and this module needs ' . ABI . " or later\n"
    if abi_version() < ABI;

# While a call waits, Perl's signal handlers get their turn: Perl runs them whenever it runs anything. One that dies ends this function too, which
# Platypus warns of and turns into 0, and that ends the wait; its exception is then still in $@. A package variable, since C keeps calling it.
our $GOING_ON = $ffi->closure(sub { 1 });
set_going_on($GOING_ON);

# A thread of Perl's is given copies of all objects. What Platypus keeps behind a function for C is freed with its object, and a copy would free it once
# more, which ends the program.
sub FFI::Platypus::ClosureData::CLONE_SKIP { 1 }

# room(SIZE): so many zero bytes that nobody else has; C writes into them.
sub room { my ($size) = @_; my $bytes = ''; vec($bytes, $size - 1, 8) = 0 if $size; return $bytes }

# text(BYTES): what stands before the closing zero.
sub text { my ($bytes) = @_; $bytes =~ s/\0.*//s; utf8::decode($bytes); return $bytes }

# address(NAME): where a function of the library lies.
sub address { my ($name) = @_; return $ffi->find_symbol($name) }

# closure(CODE): a function that C may call for as long as the result is kept.
sub closure { my ($code) = @_; return $ffi->closure($code) }

# check(STATUS): raises what the call failed with, if it did.
sub check { my ($status) = @_; failed($status) if $status; return }

# Raises what this thread's last call failed with.
sub failed {
    my ($number) = @_;
    die $@ if $number == INTERRUPTED && (ref $@ || length $@);
    my ($rank, $pid) = (last_rank(), last_pid());
    Syncline::Error::raise(status_name($number), last_error(),
        $rank < 0 ? () : (rank => $rank), $pid < 0 ? () : (pid => $pid), host => last_host());
}

# The library: where SYNCLINE_LIBRARY says, beside the installed modules, in the PREFIX they are in, or where the system looks.
sub find_library {
    my $named = $ENV{SYNCLINE_LIBRARY};
    if (defined $named && length $named) {
        return File::Spec->rel2abs($named) if -e $named;
        die "SYNCLINE_LIBRARY is $named, and there is no such file\n";
    }
    for my $folder (grep { !ref } @INC) {
        my $file = "$folder/auto/Syncline/libsyncline.so";
        return File::Spec->rel2abs($file) if -e $file;
    }
    my $prefix = dirname(dirname(dirname(dirname(File::Spec->rel2abs(__FILE__)))));
    return "$prefix/lib/libsyncline.so" if -e "$prefix/lib/libsyncline.so";
    require FFI::CheckLib;
    my $found = FFI::CheckLib::find_lib(lib => 'syncline');
    return $found if defined $found;
    die "libsyncline was not found\nhint: perl Makefile.PL builds it; or say where it is: SYNCLINE_LIBRARY=/path/to/libsyncline.so\n";
}

1;

__END__

=head1 NAME

Syncline::FFI - the C interface of Syncline, as the other modules see it

=head1 DESCRIPTION

Not for programs: use L<Syncline>, L<Syncline::KVStore> or L<AI::MXNet>. This module finds C<libsyncline> (C<SYNCLINE_LIBRARY>, C<auto/Syncline> below
C<@INC>, C<../../lib> of the folder of the modules, the system's own places), attaches its functions with L<FFI::Platypus> and turns statuses into L<Syncline::Error>.

While a call waits, signal handlers run. One that dies ends the wait:

    local $SIG{ALRM} = sub { die "no patience\n" };
    alarm 5;
    Syncline::barrier();    # dies with "no patience" if somebody is missing, and Platypus says so on standard error too

=cut
