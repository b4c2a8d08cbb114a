package Syncline;

# A process's place in its job: sessions, barriers, sums, tables.

use strict;
use warnings;
no warnings qw(uninitialized);    # a signal handler that dies during a call is reported as one, at our line

use Scalar::Util qw(blessed looks_like_number);
use Syncline::Array ();
use Syncline::Error ();
use Syncline::FFI ();

our $VERSION = '0.1.0';

# The session of this process and whose it is: a forked child has none.
my ($session, $owner);

sub init {
    shift @_ if @_ % 2 && defined $_[0] && !ref $_[0] && $_[0] eq __PACKAGE__;    # Syncline->init works too
    Syncline::Error::argument('init: options come in pairs, name => value') if @_ % 2;
    my %options = @_;
    for my $option (sort keys %options) {
        Syncline::Error::argument("init has no option $option; it has sync, timeout") unless $option =~ /\A(?:sync|timeout)\z/;
    }
    my $timeout = $options{timeout} // 0;
    Syncline::Error::argument('timeout is ' . Syncline::Array::shown($timeout) . ', and must be seconds') unless !ref $timeout && looks_like_number($timeout);
    Syncline::Error::raise('ConfigurationError', "init: this process is in its job already\nhint: shutdown() leaves it") if defined $session && $owner == $$;
    my $opened;
    here();
    check(Syncline::FFI::open_session(Syncline::Array::truth($options{sync}), $timeout, \$opened));
    ($session, $owner) = ($opened, $$);
    return;
}

# The open session, joined on demand.
sub session {
    init() unless defined $session;
    return $session;
}

sub is_open { return defined $session && $owner == $$ ? 1 : 0 }

sub current {
    my ($call) = @_;
    return $session if defined $session;
    Syncline::Error::raise('Closed', "$call: there is no session\nhint: Syncline::init() joins the job");
}

sub shutdown {
    my $leaving = current('shutdown');
    undef $session;
    check(Syncline::FFI::close_session($leaving));
    return;
}

sub barrier { check(Syncline::FFI::barrier(current('barrier'))); return }

# For a process that only serves: until every worker has left or died.
sub stay_for_workers { check(Syncline::FFI::stay_for_workers(current('stay_for_workers'))); return }

# Who this process is, in the order of the structure syncline_place.
sub place {
    my ($call) = @_;
    my $bytes = Syncline::FFI::room(32);
    check(Syncline::FFI::place(current($call), $bytes));
    my %place;
    @place{qw(rank size local_rank local_size worker_id num_workers server_id num_servers)} = unpack 'l8', $bytes;
    return \%place;
}

sub rank        { place('rank')->{rank} }
sub size        { place('size')->{size} }
sub local_rank  { place('local_rank')->{local_rank} }
sub worker_id   { place('worker_id')->{worker_id} }
sub num_workers { place('num_workers')->{num_workers} }
sub server_id   { place('server_id')->{server_id} }
sub num_servers { place('num_servers')->{num_servers} }
sub is_master_worker { return worker_id() == 0 ? 1 : 0 }

# aggregate(PDL, OP): combines it over all workers, in place.
sub aggregate {
    my ($array, $op, @more) = @_;
    Syncline::Error::no_more('aggregate', @more);
    my $session = current('aggregate');
    return reduced($array, $op, sub { Syncline::FFI::aggregate($session, $_[0], $_[1], $_[2], $_[3]) });
}

# all_reduce(PDL, OP): the same over the tree of the job; in list context also how many took part.
sub all_reduce {
    my ($array, $op, @more) = @_;
    Syncline::Error::no_more('all_reduce', @more);
    my ($tree, $took_part) = (undef, 0);
    check(Syncline::FFI::tree_of(current('all_reduce'), \$tree));
    my $result = eval {
        # The bytes are passed as they lie: a copy of them would be reduced, and lost.
        here();
        reduced($array, $op, sub { Syncline::FFI::all_reduce($tree, $_[0], $_[1], $_[2], $_[3], \$took_part) });
    };
    my $error = $@;
    Syncline::FFI::tree_close($tree);
    die $error unless defined $result;
    return wantarray ? ($result, $took_part) : $result;
}

sub reduced {
    my ($array, $op, $call) = @_;
    $op //= 'sum';
    my $how = ref $op ? undef : $Syncline::FFI::OP{$op};
    Syncline::Error::argument('op ' . Syncline::Array::shown($op) . ' is none of ' . join ', ', sort keys %Syncline::FFI::OP) unless defined $how;
    Syncline::Array::to_write($array, 'the array');
    my ($written, $copied) = Syncline::Array::filling($array);
    my ($dtype, undef, undef, $data) = Syncline::Array::lend($written);
    check($call->($$data, $written->nelem, $dtype, $how));
    return Syncline::Array::filled($array, $written, $copied);
}

sub save { my ($path) = @_; check(Syncline::FFI::save(current('save'), path($path))); return }
sub load { my ($path) = @_; check(Syncline::FFI::load(current('load'), path($path))); return }

sub path {
    my ($path) = @_;
    Syncline::Error::argument('a path is ' . Syncline::Array::shown($path) . ', and must be a text') if !defined $path || ref $path && !blessed $path;
    my $bytes = "$path";
    utf8::encode($bytes);
    Syncline::Error::argument('a path holds a zero byte') if index($bytes, "\0") >= 0;
    return $bytes;
}

# Tells errors about calls that differ between ranks where this one stands.
sub here { my ($file, $line) = Syncline::Error::site(); Syncline::FFI::here($file, $line); return }

*check = \&Syncline::FFI::check;

# Programs of MXNet never say goodbye: one that ends well leaves politely, one that fails tells the others.
END {
    if (is_open()) {
        my ($leaving, $code) = ($session, $?);
        undef $session;
        local ($@, $!);
        if ($code == 0) {
            my $status = Syncline::FFI::close_session($leaving);
            if ($status) { warn 'while leaving the job: ' . Syncline::FFI::last_error() . "\n"; $code = 1 }
        }
        else { Syncline::FFI::abort_session($leaving, "the program ended with status $code") }
        $? = $code;
    }
}

# What hangs from a session, so that `use Syncline` is enough.
require Syncline::Table;

1;

__END__

=head1 NAME

Syncline - keeps the parameters of one model the same in many processes

=head1 SYNOPSIS

    use PDL;
    use Syncline;

    Syncline::init(sync => 1);
    my $table = Syncline::ArrayTable->new(10, zeroes(float, 10));
    for my $step (1 .. 100) {
        my $weights = $table->get;
        $table->add(-0.1 * gradient($weights) / Syncline::num_workers());
    }
    my ($loss, $workers) = Syncline::all_reduce(pdl(double, 0.5), 'mean');
    Syncline::barrier();
    Syncline::shutdown();

    perl train.pl
    syncline run -n 4 perl train.pl

=head1 DESCRIPTION

The program runs alone, under C<syncline run>, C<mpirun> or C<srun> without a changed line. Arrays are PDL's, lent by pointer. The key-value store is
L<Syncline::KVStore>, in MXNet's costume L<AI::MXNet>. Calls that fail die with a L<Syncline::Error>.

=head1 FUNCTIONS

=over

=item init(sync => 0, timeout => 30)

Joins the job that the environment describes, or a world of one. Twice is an error.

=item shutdown()

Leaves the job. A program that ends well does so by itself; one that dies tells the others.

=item barrier()

Everybody is here, and every add of anybody is applied.

=item stay_for_workers()

In a process that only serves (C<SYNCLINE_ROLE=server>): returns when every worker has left or died.

=item rank() size() local_rank() worker_id() num_workers() server_id() num_servers() is_master_worker() is_open()

=item aggregate($pdl, $op = 'sum')

Combines an array over all workers, in place, and returns it: C<sum prod min max mean and or>.

=item all_reduce($pdl, $op = 'sum')

The same over the tree of the job; in list context also how many took part.

=item save($path), load($path)

All tables with their updater states.

=back

Tables are described in L<Syncline::Table>.

=cut
