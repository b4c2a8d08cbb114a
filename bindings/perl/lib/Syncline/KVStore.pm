package Syncline::KVStore;

# A key-value store for PDL arrays: convert, call, convert back.

use strict;
use warnings;
no warnings qw(uninitialized);    # a signal handler that dies during a call is reported as one, at our line

use Scalar::Util qw(looks_like_number);
use Syncline ();
use Syncline::Array ();
use Syncline::Error ();
use Syncline::FFI ();
use Syncline::KVStore::Arrays ();
use Syncline::KVStore::Rules ();
use Syncline::Quick ();
use Syncline::RowSparse ();

our $VERSION = '0.1.0';
our @ISA = qw(Syncline::KVStore::Arrays Syncline::KVStore::Rules);

*check = \&Syncline::FFI::check;

# create(TYPE): a store of this type. Distributed ones join the job by themselves.
sub create {
    my ($class, $type, %options) = @_;
    $type = 'local' if @_ < 2;
    Syncline::Error::argument('the type of a store is ' . Syncline::Array::shown($type) . ', and must be a text') if !defined $type || ref $type;
    refuse_options('create', \%options, 'int_keys');
    my ($name, $handle) = (Syncline::KVStore::Arrays::encoded($type, 'the type of a store'));
    my $session = $type =~ /\Adist/i ? Syncline::session() : undef;
    Syncline::here();
    check(Syncline::FFI::kv_create($session, $name, \$handle));
    my $self = bless { handle => $handle, int_keys => Syncline::Array::truth($options{int_keys}), keys => {}, specs => {}, quick => {}, pid => $$ }, $class;
    return Syncline::Quick::store($self, $handle, $self->{quick});
}

*new = \&create;

sub handle { $_[0]{handle} }

sub DESTROY {
    my ($self) = @_;
    return if ${^GLOBAL_PHASE} eq 'DESTRUCT' || !defined $self->{handle} || $self->{pid} != $$;
    local ($@, $?);
    Syncline::FFI::kv_free($self->parted);
}

# The handle, which nobody has any more.
sub parted {
    my ($self) = @_;
    $self->{optimizer}->forget($self) if $self->{optimizer};
    return delete $self->{handle};
}

# A thread has its own interpreter: what it would free belongs to this one.
sub CLONE_SKIP { 1 }

# close: frees it now; later calls are refused.
sub close {
    my ($self) = @_;
    check(Syncline::FFI::kv_free($self->parted)) if defined $self->{handle};
    delete $self->{updater};
    return;
}

# The status of a call that may have run the user's function: what that died with comes out as it was.
sub check_push {
    my ($self, $status) = @_;
    return unless $status;
    my $place = $self->{raised} // \undef;
    if (my $raised = $$place) {
        undef $$place;
        die $raised->[0];
    }
    Syncline::FFI::failed($status);
}

sub refuse_options {
    my ($call, $options, @known) = @_;
    my %known = map { $_ => 1 } @known;
    for my $option (sort CORE::keys %$options) {
        Syncline::Error::argument("$call has no option $option" . (@known ? '; it has ' . join ', ', @known : '')) unless $known{$option};
    }
    my $priority = $options->{priority};
    Syncline::Error::argument("$call: priority is " . Syncline::Array::shown($priority) . ', and must be a number of at most 31 bits')
        if exists $options->{priority} && !(defined $priority && looks_like_number($priority) && abs($priority) < 2**31);
    return;
}

sub paired { my ($call, @rest) = @_; Syncline::Error::argument("$call: options come in pairs, name => value") if @rest % 2; return @rest }

# --- the calls ---------------------------------------------------------------------------------------------------------------------

sub init {
    my ($self, $key, $value, @more) = @_;
    Syncline::Error::no_more('init', @more);
    my ($keys, $arrays) = $self->pairs($key, $value, 'values');
    my @keep;
    my @lent = $self->lent($keys, $arrays, \@keep);
    Syncline::here();
    check(Syncline::FFI::kv_init($self->{handle}, @lent, scalar @$keys));
    $self->remember_key($keys->[$_], $arrays->[$_]) for 0 .. $#$keys;
    return;
}

*push = Syncline::Quick::or_else(push => __PACKAGE__ . '::push_any');
*pull = Syncline::Quick::or_else(pull => __PACKAGE__ . '::pull_any');

sub push_any {
    my ($self, $key, $value, @rest) = @_;
    my %options = (priority => 0, wait => 1, paired('push', @rest));
    refuse_options('push', \%options, qw(priority wait));
    my ($keys, $arrays) = $self->pairs($key, $value, 'values');
    my @keep;
    my @lent = $self->lent($keys, $arrays, \@keep);
    # A function of Perl's runs in the thread that called, never in the background.
    my $status = Syncline::Array::truth($options{wait}) || $self->{updater}
        ? Syncline::FFI::kv_push($self->{handle}, @lent, scalar @$keys)
        : Syncline::FFI::kv_push_async($self->{handle}, @lent, scalar @$keys, $options{priority}, undef);
    $self->check_push($status) if $status;
    return;
}

sub pull_any {
    my ($self, $key, @rest) = @_;
    my %options = paired('pull', @rest);
    refuse_options('pull', \%options, qw(out priority ignore_sparse));
    my $out = $options{out};
    return $self->pull_new($key) unless defined $out;
    my $ignored = exists $options{ignore_sparse} ? Syncline::Array::truth($options{ignore_sparse}) : 1;
    my ($keys, $arrays) = $self->pairs($key, $out, 'outputs');
    my @keep;
    my ($bytes, $after) = $self->outputs($arrays, \@keep);
    check(Syncline::FFI::kv_pull($self->{handle}, join('', map { $self->packed_key($_) } @$keys), $bytes, scalar @$keys, $ignored));
    $self->finish($arrays, $after, $ignored);
    return $out;
}

# New arrays for keys that were made before.
sub pull_new {
    my ($self, $key) = @_;
    my $one = sub { my $spec = $self->spec('pull', $_[0]); $self->pull($_[0], out => Syncline::Array::fresh(@$spec[0, 1])) };
    return ref $key eq 'ARRAY' ? [map { $one->($_) } @$key] : $one->($key);
}

sub pushpull {
    my ($self, $key, $value, @rest) = @_;
    my %options = paired('pushpull', @rest);
    refuse_options('pushpull', \%options, qw(out priority));
    my $out = $options{out} // $value;
    my ($keys, $arrays) = $self->pairs($key, $value, 'values');
    my ($out_keys, $out_arrays) = $self->pairs($key, $out, 'outputs');
    my @keep;
    my ($bytes, $after) = $self->outputs($out_arrays, \@keep);
    my $out_key_bytes = join '', map { $self->packed_key($_) } @$out_keys;
    $self->check_push(Syncline::FFI::kv_pushpull($self->{handle}, $self->lent($keys, $arrays, \@keep), scalar @$keys,
        $out_key_bytes, $bytes, scalar @$out_keys));
    $self->finish($out_arrays, $after, 1);
    return $out;
}

sub broadcast {
    my ($self, $key, $value, @rest) = @_;
    my %options = paired('broadcast', @rest);
    refuse_options('broadcast', \%options, qw(out priority));
    # Refused before anything is made.
    if (defined $options{out}) {
        my @keep;
        my (undef, $out_arrays) = $self->pairs($key, $options{out}, 'outputs');
        $self->outputs($out_arrays, \@keep);
    }
    $self->init($key, $value);
    return $self->pull($key, defined $options{out} ? (out => $options{out}) : ());
}

sub row_sparse_pull {
    my ($self, $key, @rest) = @_;
    my %options = paired('row_sparse_pull', @rest);
    refuse_options('row_sparse_pull', \%options, qw(out priority row_ids));
    Syncline::Error::raise('ConfigurationError', 'row_sparse_pull: row_ids is missing') unless defined $options{row_ids};
    my $out = $options{out};
    unless (defined $out) {
        my $new = sub { my $spec = $self->spec('row_sparse_pull', $_[0]); Syncline::RowSparse->zeros($spec->[1], dtype => $spec->[0]) };
        $out = ref $key eq 'ARRAY' ? [map { $new->($_) } @$key] : $new->($key);
    }
    my ($keys, $outs) = $self->pairs($key, $out, 'outputs');
    for my $each (@$outs) {
        Syncline::Error::argument('row_sparse_pull: the output is ' . Syncline::Array::shown($each) . ", and must be a Syncline::RowSparse\nhint: pull fills dense arrays")
            unless Syncline::RowSparse::is($each);
    }
    my @ids = Syncline::KVStore::Arrays::row_ids($options{row_ids}, scalar @$outs);
    my (@keep, @lent);
    my $bytes = '';
    for my $place (0 .. $#$outs) {
        my $lent = $outs->[$place]->lent;
        my $data = $ids[$place]->get_dataref;
        CORE::push @lent, $lent;
        CORE::push @keep, $data;
        $bytes .= $self->packed_key($keys->[$place]) . pack('pQQ', $$data, $ids[$place]->nelem, $lent->{handle});
    }
    check(Syncline::FFI::kv_row_sparse_pull($self->{handle}, $bytes, scalar @$outs));
    $outs->[$_]->take($lent[$_]) for 0 .. $#$outs;
    return $out;
}

# --- what it is --------------------------------------------------------------------------------------------------------------------

sub type {
    my ($self) = @_;
    my $name = Syncline::FFI::room(64);
    check(Syncline::FFI::kv_type($self->{handle}, $name, 64));
    return Syncline::FFI::text($name);
}

sub place {
    my ($self) = @_;
    my ($rank, $workers) = (0, 0);
    check(Syncline::FFI::kv_where($self->{handle}, \$rank, \$workers));
    return ($rank, $workers);
}

sub rank        { ($_[0]->place)[0] }
sub num_workers { ($_[0]->place)[1] }
sub keys        { my ($self) = @_; return sort CORE::keys %{ $self->{specs} } }

sub num_dead_node {
    my ($self) = @_;
    my $dead = 0;
    check(Syncline::FFI::kv_dead($self->{handle}, \$dead));
    return $dead;
}

sub is_capable {
    my ($self, $capability, @more) = @_;
    Syncline::Error::no_more('is_capable', @more);
    Syncline::Error::argument('a capability is ' . Syncline::Array::shown($capability) . ', and must be a text') if !defined $capability || ref $capability;
    my $capable = 0;
    check(Syncline::FFI::kv_capable($self->{handle}, Syncline::KVStore::Arrays::encoded($capability, 'a capability'), \$capable));
    return $capable;
}

sub barrier { my ($self) = @_; check(Syncline::FFI::kv_barrier($self->{handle})); return }

# flush: until everything that was pushed in the background has been.
sub flush { my ($self) = @_; check(Syncline::FFI::kv_flush($self->{handle})); return }

sub send_command_to_servers {
    my ($self, $head, $body, @more) = @_;
    Syncline::Error::no_more('send_command_to_servers', @more);
    Syncline::Error::argument('a command is ' . Syncline::Array::shown($head) . ', and must be a whole number') unless defined $head && !ref $head && $head =~ /\A-?[0-9]{1,18}\z/;
    my ($text, $answer) = (encoded_body($body), Syncline::FFI::room(1024));
    check(Syncline::FFI::kv_command($self->{handle}, $head, $text, length $text, $answer, 1024));
    return Syncline::FFI::text($answer);
}

sub encoded_body {
    my ($body) = @_;
    Syncline::Error::argument('the body of a command is ' . Syncline::Array::shown($body) . ', and must be a text') if ref $body;
    my $text = $body // '';
    utf8::encode($text) if utf8::is_utf8($text);
    return $text;
}

1;

__END__

=head1 NAME

Syncline::KVStore - push gradients, pull weights, with PDL arrays

=head1 SYNOPSIS

    use PDL;
    use Syncline::KVStore;

    my $kv = Syncline::KVStore->create('dist_sync');      # joins the job that is there
    my $weights = zeroes(float, 3);
    $kv->init(w => $weights);                             # worker 0's value counts
    $kv->set_optimizer('sgd', learning_rate => 0.5, rescale_grad => 1 / $kv->num_workers);
    for (1 .. 40) {
        $kv->push(w => $weights - pdl(float, 1, 2, 3));
        $kv->pull(w => (out => $weights));
    }

    perl train.pl
    syncline run -n 3 perl train.pl

=head1 DESCRIPTION

MXNet's KVStore, in one process or over many; L<AI::MXNet::KVStore> is the same in MXNet's costume. Values are PDL arrays or L<Syncline::RowSparse>.
Arrays are lent by pointer for the time of the call; the store neither keeps nor changes what is pushed. A PDL of dimensions C<(3, 2)> is an array of shape
C<[2, 3]> to workers in other languages.

Every call takes one key or a list, and for each key one value or a list of values. Keys are texts (C<3> and C<'3'> are the same one); C<< int_keys => 1 >> makes them the
numbers that other languages have. A refused call has changed nothing, and dies with a L<Syncline::Error>.

=head1 METHODS

=over

=item create($type = 'local', int_keys => 0)

C<local>, C<device>, C<dist_sync>, C<dist_async> and their other names, in any case. C<new> is the same.

=item init($key, $value)

Makes keys. Every worker makes the same ones, in any order, before its first push of them; worker 0's values count.

=item push($key, $value, priority => 0, wait => 1)

The values of a key are summed; then the updater or optimizer decides, or the sum replaces what is stored. With C<< wait => 0 >> the values are copied and the push goes on in the background, behind
earlier ones of its key and before those of other keys that have a smaller priority; if it fails, the next pull of its key says so. With an updater in Perl, which runs in this thread only, it is done at once.

=item pull($key, out => ..., priority => 0, ignore_sparse => 1)

Fills C<out> and returns it; without it returns new arrays. Contains every earlier push of this worker. It is done when it returns, so that its priority orders nothing.

=item pushpull($key, $value, out => ..., priority => 0)

Both; without C<out> the result is written back into the values.

=item broadcast($key, $value, out => ..., priority => 0)

C<init>, then C<pull>: everybody has worker 0's value.

=item row_sparse_pull($key, row_ids => ..., out => ..., priority => 0)

Exactly these rows, into L<Syncline::RowSparse> outputs or new ones. Ids come in any order and shape, repeated or none: one list for all outputs, or one for each.

=item set_optimizer($optimizer) or set_optimizer($name, %options)

What a push does, where the weights live: see L<Syncline::Optimizer>. C<set_learning_rate($rate)> changes only that, and states stay. C<optimizer> is what this process set.

=item set_updater($code)

C<< $code->($key, $received, $stored) >> changes C<$stored> in place (C<+=>, C<.=>); in local stores only, since functions do not travel. It sees your key. What it dies with comes out of the push.
It must not call the store. C<undef> lets pushes replace what is stored. C<updater> is the function.

=item set_gradient_compression({ type => '2bit', threshold => 0.5 })

Pushes in few bits; C<device> and distributed stores, before the first push, on every worker. Types: C<2bit>, C<1bit>, C<fp16>, C<bf16>, C<int8>, C<topk>.

=item save_optimizer_states($file, dump_optimizer => 0), load_optimizer_states($file)

One file for any number of workers and servers. All workers of a distributed store call it.

=item barrier, flush, send_command_to_servers($head, $body), is_capable('optimizer')

=item type, rank, num_workers, num_dead_node, keys

=item close

Frees the store; it goes by itself with its last reference.

=back

=cut
