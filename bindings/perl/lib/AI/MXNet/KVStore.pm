package AI::MXNet::KVStore;

# MXNet's key-value store: checks arguments as the original does, and lets Syncline::KVStore do the work.

use strict;
use warnings;

use Scalar::Util qw(blessed);
use AI::MXNet::NDArray ();
use Syncline::Array ();
use Syncline::Error ();
use Syncline::KVStore ();
use Syncline::Quick ();

our $VERSION = '0.1.0';

sub create {
    my ($class, @name) = @_;
    Syncline::Error::argument('create takes one name, as create("local")') if @name > 1;
    my $served = served(@name);
    return bless { store => $served }, $class if $served;
    my $self = bless { store => Syncline::KVStore->create(@name) }, $class;
    return Syncline::Quick::store($self, $self->{store}->handle, $self->{store}{quick});
}

# In a process that only serves, what stands for a distributed store: it joins the job, and workers do the rest.
sub served {
    my ($name) = @_;
    return unless defined $name && !ref $name && $name =~ /\Adist/i && Syncline::session() && Syncline::worker_id() < 0;
    return bless { type => lc $name }, 'AI::MXNet::KVStore::Served';
}

# A thread has its own interpreter, and the store belongs to this one.
sub CLONE_SKIP { 1 }

sub handle   { $_[0]{store}->handle }
sub _updater { $_[0]{updater} }

# Str or ArrayRef of Str.
sub keys_of {
    my ($call, $key) = @_;
    for my $each (ref $key eq 'ARRAY' ? @$key : $key) {
        Syncline::Error::argument("$call: a key is " . Syncline::Array::shown($each) . ', and must be a text') if !defined $each || ref $each;
    }
    return $key;
}

# NDArray, ArrayRef of them, or ArrayRef of ArrayRef: as what the store below takes.
sub arrays_of {
    my ($call, $given, $depth) = @_;
    return $given->stored if AI::MXNet::NDArray::is($given);
    return [map { arrays_of($call, $_, ($depth // 0) + 1) } @$given] if ref $given eq 'ARRAY' && ($depth // 0) < 2;
    Syncline::Error::argument("$call: a value is " . Syncline::Array::shown($given) . ', and must be an AI::MXNet::NDArray');
}

# The options of a call, with their defaults; `out` is demanded where the original does.
sub options_of {
    my ($call, $given, %defaults) = @_;
    Syncline::Error::argument("$call: options come in pairs, name => value") if @$given % 2;
    my %options = (%defaults, @$given);
    for my $option (sort keys %options) {
        Syncline::Error::argument("$call has no option $option") unless exists $defaults{$option};
    }
    return %options;
}

sub init {
    my ($self, $key, $value, @more) = @_;
    Syncline::Error::no_more('init', @more);
    $self->{store}->init(keys_of('init', $key), arrays_of('init', $value));
    return;
}

*push = Syncline::Quick::or_else(costumed_push => __PACKAGE__ . '::push_any');
*pull = Syncline::Quick::or_else(costumed_pull => __PACKAGE__ . '::pull_any');

# One with a priority goes on in the background, so that there is something to order.
sub push_any {
    my ($self, $key, $value, @rest) = @_;
    my %options = options_of('push', \@rest, priority => 0);
    my $now = !(Scalar::Util::looks_like_number($options{priority}) && $options{priority} != 0);
    $self->{store}->push(keys_of('push', $key), arrays_of('push', $value), priority => $options{priority}, wait => $now);
    return;
}

sub check_push { my ($self, $status) = @_; return $self->{store}->check_push($status) }

sub pull_any {
    my ($self, $key, @rest) = @_;
    my %options = options_of('pull', \@rest, out => undef, priority => 0, ignore_sparse => 1);
    Syncline::Error::argument('pull: out is missing') unless defined $options{out};
    $self->{store}->pull(keys_of('pull', $key), out => arrays_of('pull', $options{out}), priority => $options{priority}, ignore_sparse => $options{ignore_sparse});
    return;
}

sub pushpull {
    my ($self, $key, $value, @rest) = @_;
    my %options = options_of('pushpull', \@rest, out => undef, priority => 0);
    my $out = defined $options{out} ? arrays_of('pushpull', $options{out}) : undef;
    $self->{store}->pushpull(keys_of('pushpull', $key), arrays_of('pushpull', $value), defined $out ? (out => $out) : (), priority => $options{priority});
    return;
}

sub broadcast {
    my ($self, $key, $value, @rest) = @_;
    my %options = options_of('broadcast', \@rest, out => undef, priority => 0);
    Syncline::Error::argument('broadcast: out is missing') unless defined $options{out};
    $self->{store}->broadcast(keys_of('broadcast', $key), arrays_of('broadcast', $value), out => arrays_of('broadcast', $options{out}), priority => $options{priority});
    return;
}

sub row_sparse_pull {
    my ($self, $key, @rest) = @_;
    my %options = options_of('row_sparse_pull', \@rest, out => undef, priority => 0, row_ids => undef);
    Syncline::Error::argument('row_sparse_pull: out is missing') unless defined $options{out};
    Syncline::Error::argument('row_sparse_pull: row_ids is missing') unless defined $options{row_ids};
    my $out = $options{out};
    my @outs = map { ref $_ eq 'ARRAY' ? @$_ : $_ } ref $out eq 'ARRAY' ? @$out : $out;
    for my $each (@outs) {
        Syncline::Error::argument("row_sparse_pull: the output must be row_sparse; pull fills dense arrays")
            unless AI::MXNet::NDArray::is($each) && $each->stype eq 'row_sparse';
    }
    my @ids = map { ref $_ eq 'ARRAY' ? @$_ : $_ } ref $options{row_ids} eq 'ARRAY' ? @{ $options{row_ids} } : $options{row_ids};
    for my $each (@ids) {
        Syncline::Error::argument('row_sparse_pull: row_ids are ' . Syncline::Array::shown($each) . ', and must be an AI::MXNet::NDArray') unless AI::MXNet::NDArray::is($each);
    }
    # One list of ids: pulled once into the first output of each key, and copied to the others.
    $self->{store}->row_sparse_pull(keys_of('row_sparse_pull', $key), out => arrays_of('row_sparse_pull', $out), priority => $options{priority},
        row_ids => [map { $_->dense } @ids]);
    return;
}

sub set_gradient_compression { my ($self, @words) = @_; return $self->{store}->set_gradient_compression(@words) }

sub set_optimizer {
    my ($self, $optimizer, @more) = @_;
    Syncline::Error::no_more('set_optimizer', @more);
    Syncline::Error::argument('set_optimizer: ' . Syncline::Array::shown($optimizer) . ', and must be an AI::MXNet::Optimizer') unless blessed $optimizer && $optimizer->isa('Syncline::Optimizer');
    $self->{store}->set_optimizer($optimizer);
    $self->{updater} = $optimizer;
    return;
}

sub _set_updater {
    my ($self, $code, @more) = @_;
    Syncline::Error::no_more('_set_updater', @more);
    Syncline::Error::argument('_set_updater: ' . Syncline::Array::shown($code) . ' is no function') unless ref $code eq 'CODE';
    $self->{store}->set_updater(sub {
        my ($key, $recv, $local) = @_;
        my $received = Syncline::RowSparse::is($recv) ? AI::MXNet::NDArray::RowSparse->around($recv) : AI::MXNet::NDArray->of($recv);
        $code->($key, $received, AI::MXNet::NDArray->of($local));
    });
    $self->{updater} = $code;
    return;
}

sub type          { $_[0]{store}->type }
sub rank          { $_[0]{store}->rank }
sub num_workers   { $_[0]{store}->num_workers }
sub num_dead_node { $_[0]{store}->num_dead_node }
sub is_capable    { my ($self, @what) = @_; return $self->{store}->is_capable(@what) }
sub _barrier      { $_[0]{store}->barrier }

sub save_optimizer_states {
    my ($self, $file, @rest) = @_;
    my %options = options_of('save_optimizer_states', \@rest, dump_optimizer => 0);
    return $self->{store}->save_optimizer_states($file, %options);
}

sub load_optimizer_states    { my ($self, @file) = @_; return $self->{store}->load_optimizer_states(@file) }
sub _send_command_to_servers { my ($self, @command) = @_; $self->{store}->send_command_to_servers(@command); return }

package AI::MXNet::KVStore::Served;

sub type        { $_[0]{type} }
sub rank        { Syncline::server_id() }
sub num_workers { Syncline::num_workers() }
sub DESTROY     { }

our $AUTOLOAD;

sub AUTOLOAD {
    my $call = $AUTOLOAD =~ s/.*:://r;
    Syncline::Error::raise('ConfigurationError', "$call: this process only serves; its workers call that\nhint: AI::MXNet::KVStoreServer has run()");
}

1;

__END__

=head1 NAME

AI::MXNet::KVStore - MXNet's key-value store

=head1 SYNOPSIS

    use AI::MXNet qw(mx);

    my $kv = mx->kv->create('local');
    my $shape = [2, 3];
    $kv->init(3, mx->nd->ones($shape) * 2);
    $kv->_set_updater(sub { my ($key, $input, $stored) = @_; $stored += $input * 2 });
    $kv->push(3, [map { mx->nd->ones($shape, ctx => mx->cpu($_)) } 0 .. 3]);
    my $out = mx->nd->zeros($shape);
    $kv->pull(3, out => $out);
    print $out->aspdl;                 # 2 + 2 * 4 = 10

=head1 DESCRIPTION

Names, arguments and defaults of MXNet's Perl interface. Keys are texts: C<3> and C<'3'> are the same. L<Syncline::KVStore> is the same store without the costume, for PDL arrays.

=head1 METHODS

=over

=item create($name = 'local')

=item init($key, $value)

=item push($key, $value, priority => 0)

With another priority than 0 it goes on in the background, those with the largest first; the next pull of its key waits for it.

=item pull($key, out => ..., priority => 0, ignore_sparse => 1)

=item row_sparse_pull($key, out => ..., priority => 0, row_ids => ...)

=item set_optimizer($optimizer)

=item set_gradient_compression({ type => '2bit', threshold => 0.5 })

=item save_optimizer_states($fname, dump_optimizer => 0), load_optimizer_states($fname)

=item type, rank, num_workers

=item _set_updater($code), _barrier, _send_command_to_servers($head, $body)

=item handle, _updater

=back

The original's Perl interface lacks these, its Python interface has them: C<pushpull($key, $value, out =E<gt> ..., priority =E<gt> 0)>, C<broadcast($key, $value, out =E<gt> ..., priority =E<gt> 0)>, C<is_capable('optimizer')>, C<num_dead_node>.

=head1 DIFFERENT ON PURPOSE

Updaters see your key, not an index. Unknown types of stores are refused. Optimizer states of distributed stores can be saved. The store never shares memory with an array that was pushed. An optimizer
travels as data: nothing that arrives is executed. Loading the module in a server process runs no server: C<syncline run --servers>, C<syncline server> and L<AI::MXNet::KVStoreServer> do.

=cut
