package Syncline::KVStore;

# A key-value store for PDL arrays: convert, call, convert back.

use strict;
use warnings;
no warnings qw(uninitialized);    # a signal handler that dies during a call is reported as one, at our line

use FFI::Platypus::Buffer qw(buffer_to_scalar scalar_to_pointer);
use FFI::Platypus::Memory qw(memcpy);
use Scalar::Util qw(blessed looks_like_number refaddr weaken);
use Syncline ();
use Syncline::Array qw(READY NONE ALONE);
use Syncline::Error ();
use Syncline::FFI ();
use Syncline::Optimizer ();
use Syncline::RowSparse ();

our $VERSION = '0.1.0';

# create(TYPE): a store of this type. Distributed ones join the job by themselves.
sub create {
    my ($class, $type, %options) = @_;
    $type = 'local' if @_ < 2;
    Syncline::Error::argument('the type of a store is ' . Syncline::Array::shown($type) . ', and must be a text') if !defined $type || ref $type;
    refuse_options('create', \%options, 'int_keys');
    my ($name, $handle) = (encoded($type, 'the type of a store'));
    my $session = $type =~ /\Adist/i ? Syncline::session() : undef;
    Syncline::here();
    check(Syncline::FFI::kv_create($session, $name, \$handle));
    return bless { handle => $handle, int_keys => Syncline::Array::truth($options{int_keys}), keys => {}, specs => {}, pid => $$ }, $class;
}

*new = \&create;

sub handle { $_[0]{handle} }

sub DESTROY {
    my ($self) = @_;
    return if ${^GLOBAL_PHASE} eq 'DESTRUCT' || !defined $self->{handle} || $self->{pid} != $$;
    local ($@, $?);
    Syncline::FFI::kv_free(delete $self->{handle});
}

# A thread has its own interpreter: what it would free belongs to this one.
sub CLONE_SKIP { 1 }

# close: frees it now; later calls are refused.
sub close {
    my ($self) = @_;
    my $handle = delete $self->{handle};
    check(Syncline::FFI::kv_free($handle)) if defined $handle;
    delete $self->{updater};
    return;
}

# --- keys and arrays ---------------------------------------------------------------------------------------------------------------

sub encoded {
    my ($text, $what) = @_;
    my $bytes = "$text";
    utf8::encode($bytes);
    Syncline::Error::argument("$what holds a zero byte") if index($bytes, "\0") >= 0;
    return $bytes;
}

# The structure syncline_kv_key of a key. What is remembered keeps the memory that it points to.
sub packed_key {
    my ($self, $key) = @_;
    Syncline::Error::argument('a key is ' . Syncline::Array::shown($key) . ', and must be a text or a number') if !defined $key || ref $key;
    my $known = $self->{keys}{$key};
    return $known->[0] if $known;
    if ($self->{int_keys}) {
        Syncline::Error::argument('key ' . Syncline::Array::shown($key) . ' is no whole number, and this store has int_keys')
            unless $key =~ /\A-?[0-9]{1,19}\z/ && ($key <= 9223372036854775807 && $key >= -9223372036854775808);
        return pack 'Qq', 0, $key;
    }
    my $kept = ["", encoded($key, 'a key')];
    $kept->[0] = pack 'pq', $kept->[1], 0;
    # A bounded memory of strangers: keys that are never made do not pile up.
    $self->{passing} = [] if @{ $self->{passing} // [] } > 1000;
    CORE::push @{ $self->{passing} }, $kept;
    return $kept->[0];
}

# Makes calls about a key quick from now on.
sub remember_key {
    my ($self, $key, $array) = @_;
    my $rows = Syncline::RowSparse::is($array);
    $self->{specs}{$key} = $rows ? [$array->dtype, $array->shape, 1] : [Syncline::Array::dtype_of($array), Syncline::Array::shape_of($array), 0];
    my $kept = ["", encoded($key, 'a key')];
    $kept->[0] = $self->{int_keys} ? pack('Qq', 0, $key) : pack('pq', $kept->[1], 0);
    $kept->[2] = '';
    my @dims = $rows ? (0) x 9 : $array->dims;
    if (@dims <= 6) {
        # What the structure of a PDL of this very shape and type holds, and the beginning of what the library wants to know of it.
        $kept->[5] = pack 'Q*', reverse @dims;
        @$kept[1 .. 4] = ($kept->[1], pack('l', $array->get_datatype), pack('q', scalar @dims), pack('q*', @dims));
        $kept->[6] = pack 'lLp', $Syncline::Array::DTYPE_OF[$array->get_datatype], scalar @dims, $kept->[5];
        $kept->[7] = 8 * @dims;
    }
    $self->{keys}{$key} = $kept;
}

# Keys and arrays as two flat lists: a key with several arrays stands several times.
sub pairs {
    my ($self, $keys, $arrays, $what) = @_;
    my (@keys, @arrays);
    my @list = ref $keys eq 'ARRAY' ? @$keys : ($keys);
    my @given = ref $keys eq 'ARRAY' ? (ref $arrays eq 'ARRAY' ? @$arrays : ($arrays)) : ($arrays);
    if (@list != @given) {
        my ($has, $needs) = (scalar @given, scalar @list);
        Syncline::Error::raise('ShapeMismatch', "there are $needs keys and $has $what");
    }
    for my $place (0 .. $#list) {
        my $given = $given[$place];
        my @of_key = ref $given eq 'ARRAY' ? @$given : ($given);
        Syncline::Error::argument("there are no $what for key " . Syncline::Array::shown($list[$place])) unless @of_key;
        CORE::push @keys, ($list[$place]) x @of_key;
        CORE::push @arrays, @of_key;
    }
    return (\@keys, \@arrays);
}

# lent(KEYS, ARRAYS, KEEP): both as structures; what they point to stays in KEEP.
sub lent {
    my ($self, $keys, $arrays, $keep) = @_;
    my $key_bytes = join '', map { $self->packed_key($_) } @$keys;
    my $array_bytes = join '', map { lent_array($_, $keep) } @$arrays;
    return ($key_bytes, $array_bytes);
}

sub lent_array {
    my ($array, $keep) = @_;
    if (Syncline::RowSparse::is($array)) {
        my $lent = $array->lent;
        CORE::push @$keep, $lent;
        return pack 'lLQQQ', 0, 0, 0, 0, $lent->{handle};
    }
    Syncline::Error::argument('a value is ' . Syncline::Array::shown($array) . ', and must be a PDL or a Syncline::RowSparse')
        unless blessed $array && $array->isa('PDL');
    return Syncline::Array::describe(Syncline::Array::whole($array, 'a value'), $keep);
}

# Outputs: what is written, and what is to be done with it afterwards.
sub outputs {
    my ($self, $arrays, $keep) = @_;
    my (@after, %seen);
    my $bytes = '';
    for my $array (@$arrays) {
        if (Syncline::RowSparse::is($array)) {
            my $lent = $array->lent;
            CORE::push @$keep, $lent;
            CORE::push @after, sub { $array->take($lent) };
            $bytes .= pack 'lLQQQ', 0, 0, 0, 0, $lent->{handle};
            next;
        }
        Syncline::Array::to_write($array, 'an output');
        my ($written, $copied) = Syncline::Array::filling($array);
        # The same array twice is written through a copy, as two arrays of the same memory would be refused.
        ($written, $copied) = ($array->copy, 1) if $seen{ refaddr $array }++;
        CORE::push @after, sub { Syncline::Array::filled($array, $written, $copied) };
        $bytes .= Syncline::Array::describe($written, $keep);
    }
    return ($bytes, \@after);
}

sub check { my ($status) = @_; Syncline::FFI::failed($status) if $status; return }

# The status of a call that may have run the user's function: what that died with comes out as it was.
sub check_push {
    my ($self, $status) = @_;
    return unless $status;
    my $raised = delete $self->{raised};
    die $$raised if $raised;
    Syncline::FFI::failed($status);
}

sub refuse_options {
    my ($call, $options, @known) = @_;
    my %known = map { $_ => 1 } @known;
    for my $option (sort CORE::keys %$options) {
        Syncline::Error::argument("$call has no option $option" . (@known ? '; it has ' . join ', ', @known : '')) unless $known{$option};
    }
    my $priority = $options->{priority};
    Syncline::Error::argument("$call: priority is " . Syncline::Array::shown($priority) . ', and must be a number')
        if exists $options->{priority} && !(defined $priority && looks_like_number($priority));
    return;
}

sub paired { my ($call, @rest) = @_; Syncline::Error::argument("$call: options come in pairs, name => value") if @rest % 2; return @rest }

# --- the calls ---------------------------------------------------------------------------------------------------------------------

sub init {
    my ($self, $key, $value) = @_;
    my ($keys, $arrays) = $self->pairs($key, $value, 'values');
    my @keep;
    my @lent = $self->lent($keys, $arrays, \@keep);
    Syncline::here();
    check(Syncline::FFI::kv_init($self->{handle}, @lent, scalar @$keys));
    $self->remember_key($keys->[$_], $arrays->[$_]) for 0 .. $#$keys;
    return;
}

sub push {
    # One key that is known and one array as it was made: most pushes, and the ones that must be quick (see Syncline::Array).
    if ($Syncline::Array::LOOKS && @_ == 3 && ref $_[2] eq 'PDL' && defined $_[1] and my $known = $_[0]{keys}{ $_[1] }) {
        my $bytes = unpack 'P304', pack 'J', ${ $_[2] };
        if (substr($bytes, 8, 4) eq READY && substr($bytes, 16, 8) eq NONE && substr($bytes, 136, 4) eq $known->[2]
            && substr($bytes, 160, 8) eq $known->[3] && substr($bytes, 256, $known->[7]) eq $known->[4]) {
            my $status = Syncline::FFI::kv_push($_[0]{handle}, $known->[0], $known->[6] . substr($bytes, 48, 8) . NONE, 1);
            $_[0]->check_push($status) if $status;
            return;
        }
    }
    my ($self, $key, $value, @rest) = @_;
    refuse_options('push', { paired('push', @rest) }, 'priority');
    my ($keys, $arrays) = $self->pairs($key, $value, 'values');
    my @keep;
    my $status = Syncline::FFI::kv_push($self->{handle}, $self->lent($keys, $arrays, \@keep), scalar @$keys);
    $self->check_push($status) if $status;
    return;
}

sub pull {
    # As in `push`; an array that others are computed from has to tell them, which takes a method.
    if ($Syncline::Array::LOOKS && @_ == 4 && ref $_[3] eq 'PDL' && !ref $_[2] && $_[2] eq 'out' && defined $_[1] and my $known = $_[0]{keys}{ $_[1] }) {
        my $bytes = unpack 'P304', pack 'J', ${ $_[3] };
        if (substr($bytes, 8, 4) eq READY && substr($bytes, 16, 8) eq NONE && substr($bytes, 136, 4) eq $known->[2]
            && substr($bytes, 160, 8) eq $known->[3] && substr($bytes, 256, $known->[7]) eq $known->[4] && substr($bytes, 184, 72) eq ALONE) {
            my $status = Syncline::FFI::kv_pull($_[0]{handle}, $known->[0], $known->[6] . substr($bytes, 48, 8) . NONE, 1, 1);
            check($status) if $status;
            return $_[3];
        }
    }
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

sub spec {
    my ($self, $call, $key) = @_;
    my $spec = defined $key && !ref $key ? $self->{specs}{$key} : undef;
    return $spec if $spec;
    $self->packed_key($key);    # refuses what is no key
    Syncline::Error::raise('UnknownKey', "$call: key $key doesn't exist. Did you init?");
}

# Makes what was written visible; row-sparse outputs that were left alone stay as they are.
sub finish {
    my ($self, $arrays, $after, $rows_left_alone) = @_;
    for my $place (0 .. $#$arrays) {
        $after->[$place]->() unless $rows_left_alone && Syncline::RowSparse::is($arrays->[$place]);
    }
    return;
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
    my @ids = row_ids($options{row_ids}, scalar @$outs);
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

# One list of ids for all outputs, or one for each.
sub row_ids {
    my ($given, $count) = @_;
    my $several = ref $given eq 'ARRAY' && @$given && ref $given->[0];
    my @lists = $several ? @$given : ($given);
    my @ids = map { Syncline::Array::ids($_, 'row_ids') } @lists;
    return ($ids[0]) x $count if @ids == 1;
    Syncline::Error::raise('ShapeMismatch', "row_sparse_pull: the number of row_ids doesn't match the number of values: " . @ids . " and $count") if @ids != $count;
    return @ids;
}

# --- what a push does --------------------------------------------------------------------------------------------------------------

sub set_updater {
    my ($self, $code) = @_;
    unless (defined $code) {
        check(Syncline::FFI::kv_set_updater($self->{handle}, undef, undef));
        delete @$self{qw(updater closure)};
        return;
    }
    Syncline::Error::argument('an updater is ' . Syncline::Array::shown($code) . ', and must be a function') unless ref $code eq 'CODE';
    weaken(my $store = $self);
    my $closure = Syncline::FFI::closure(sub {
        my (undef, $key, $pushed, $stored) = @_;
        return 0 if eval { update($code, $key, $pushed, $stored); 1 };
        my $raised = $@;
        $store->{raised} = \$raised if $store;
        return 1;
    });
    check(Syncline::FFI::kv_set_updater($self->{handle}, $closure, undef));
    # Only now may an earlier one go.
    @$self{qw(updater closure)} = ($code, $closure);
    return;
}

sub updater { $_[0]{updater} }

# What Perl sees are copies: it may keep its arrays for as long as it likes, and the store's memory stays the store's.
sub update {
    my ($code, $key, $pushed, $stored) = @_;
    my ($name, $number) = unpack 'Qq', buffer_to_scalar($key, 16);
    my $users_key = $number;
    if ($name) {
        $users_key = unpack 'p', pack 'Q', $name;
        utf8::decode($users_key);
    }
    my ($dtype, $shape, $data) = lent_by($stored);
    my (undef, undef, $recv_data, $rows) = lent_by($pushed);
    my $size = $Syncline::Array::SIZE_OF[$dtype] // Syncline::Error::argument("PDL has no $Syncline::FFI::DTYPES[$dtype]");
    $size *= $_ for @$shape;
    my $named = $Syncline::FFI::DTYPES[$dtype];
    my $local = Syncline::Array::from_bytes($named, $shape, $size ? buffer_to_scalar($data, $size) : '');
    my $recv = $rows
        ? (bless { shape => $shape, dtype => $named }, 'Syncline::RowSparse')->take({ handle => $rows })
        : Syncline::Array::from_bytes($named, $shape, $size ? buffer_to_scalar($recv_data, $size) : '');
    $code->($users_key, $recv, $local);
    my $left = $local->get_dataref;
    Syncline::Error::raise('ShapeMismatch', 'the updater left an array of another size') if length $$left < $size;
    memcpy($data, scalar_to_pointer($$left), $size) if $size;
    return;
}

# dtype, shape, data and rows of a structure syncline_kv_array.
sub lent_by {
    my ($address) = @_;
    my ($dtype, $axes, $dims, $data, $rows) = unpack 'lLQQQ', buffer_to_scalar($address, 32);
    return ($dtype, [$axes ? unpack('Q*', buffer_to_scalar($dims, 8 * $axes)) : ()], $data, $rows);
}

# set_optimizer(OBJECT) or set_optimizer(NAME, OPTIONS).
sub set_optimizer {
    my ($self, $optimizer, @options) = @_;
    unless (blessed $optimizer && $optimizer->isa('Syncline::Optimizer')) {
        Syncline::Error::argument('an optimizer is ' . Syncline::Array::shown($optimizer) . ', and must be a name or a Syncline::Optimizer')
            if !defined $optimizer || ref $optimizer;
        $optimizer = Syncline::Optimizer->create($optimizer, paired('set_optimizer', @options));
    }
    $self->use_optimizer($optimizer, 0);
    $self->{optimizer}->forget($self) if $self->{optimizer};
    $self->{optimizer} = $optimizer;
    $optimizer->attach($self);
    delete @$self{qw(updater closure)};
    return;
}

sub use_optimizer {
    my ($self, $optimizer, $keep_states) = @_;
    check(Syncline::FFI::kv_set_optimizer($self->{handle}, encoded($optimizer->name, 'an optimizer'), $optimizer->json, $keep_states));
    return;
}

sub optimizer { $_[0]{optimizer} }

sub set_learning_rate {
    my ($self, $rate) = @_;
    Syncline::Error::argument('a learning rate is ' . Syncline::Array::shown($rate) . ', and must be a number') unless defined $rate && looks_like_number($rate);
    check(Syncline::FFI::kv_set_learning_rate($self->{handle}, $rate));
    return;
}

sub set_gradient_compression {
    my ($self, $words) = @_;
    Syncline::Error::argument('set_gradient_compression takes a hash, such as { type => "2bit", threshold => 0.5 }') unless ref $words eq 'HASH';
    my @texts = map { encoded($_, 'a word') } map { ($_, $words->{$_} // '') } sort CORE::keys %$words;
    check(Syncline::FFI::kv_compress($self->{handle}, join('', map { pack 'p', $_ } @texts), @texts / 2));
    return;
}

sub save_optimizer_states {
    my ($self, $path, @rest) = @_;
    my %options = paired('save_optimizer_states', @rest);
    refuse_options('save_optimizer_states', \%options, 'dump_optimizer');
    check(Syncline::FFI::kv_save($self->{handle}, path($path), Syncline::Array::truth($options{dump_optimizer})));
    return;
}

sub load_optimizer_states {
    my ($self, $path) = @_;
    check(Syncline::FFI::kv_load($self->{handle}, path($path)));
    return;
}

sub path {
    my ($path) = @_;
    Syncline::Error::argument('a path is ' . Syncline::Array::shown($path) . ', and must be a text') if !defined $path || (ref $path && !overload::Method($path, '""'));
    return encoded("$path", 'a path');
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
    my ($self, $capability) = @_;
    Syncline::Error::argument('a capability is ' . Syncline::Array::shown($capability) . ', and must be a text') if !defined $capability || ref $capability;
    my $capable = 0;
    check(Syncline::FFI::kv_capable($self->{handle}, encoded($capability, 'a capability'), \$capable));
    return $capable;
}

sub barrier { my ($self) = @_; check(Syncline::FFI::kv_barrier($self->{handle})); return }

sub send_command_to_servers {
    my ($self, $head, $body) = @_;
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

=item push($key, $value, priority => 0)

The values of a key are summed; then the updater or optimizer decides, or the sum replaces what is stored. Calls are done when they return, so there is nothing that a priority could order.

=item pull($key, out => ..., priority => 0, ignore_sparse => 1)

Fills C<out> and returns it; without it returns new arrays. Contains every earlier push of this worker.

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

=item barrier, send_command_to_servers($head, $body), is_capable('optimizer')

=item type, rank, num_workers, num_dead_node, keys

=item close

Frees the store; it goes by itself with its last reference.

=back

=cut
