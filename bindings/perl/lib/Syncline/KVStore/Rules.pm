package Syncline::KVStore::Rules;

# What a push does to what is stored: a function of the caller's, an optimizer, fewer bits on the way; and the files that keep an optimizer's states.

use strict;
use warnings;
no warnings qw(uninitialized);    # a signal handler that dies during a call is reported as one, at our line

use FFI::Platypus::Buffer qw(buffer_to_scalar scalar_to_pointer);
use FFI::Platypus::Memory qw(memcpy);
use Scalar::Util qw(blessed looks_like_number);
use Syncline::Array ();
use Syncline::Error ();
use Syncline::FFI ();
use Syncline::Optimizer ();
use Syncline::RowSparse ();

our $VERSION = '0.1.0';

sub set_updater {
    my ($self, $code, @more) = @_;
    Syncline::Error::no_more('set_updater', @more);
    $self->flush;    # what was pushed before is none of its business, and it must not run in the background
    unless (defined $code) {
        Syncline::FFI::check(Syncline::FFI::kv_set_updater($self->{handle}, undef, undef));
        delete @$self{qw(updater closure)};
        return;
    }
    Syncline::Error::argument('an updater is ' . Syncline::Array::shown($code) . ', and must be a function') unless ref $code eq 'CODE';
    # Its own place, and not the store: that would be a circle, and a weak reference to an object that threads have no copy of ends a program that makes one.
    my $raised;
    my $closure = Syncline::FFI::closure(sub {
        my (undef, $key, $pushed, $stored) = @_;
        return 0 if eval { update($code, $key, $pushed, $stored); 1 };
        $raised = [$@];
        return 1;
    });
    Syncline::FFI::check(Syncline::FFI::kv_set_updater($self->{handle}, $closure, undef));
    $self->{raised} = \$raised;
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
        $optimizer = Syncline::Optimizer->create($optimizer, Syncline::KVStore::paired('set_optimizer', splice @options));
    }
    Syncline::Error::no_more('set_optimizer', @options);    # an object has its options
    use_optimizer($self->{handle}, $optimizer, 0);
    $self->{optimizer}->forget($self) if $self->{optimizer};
    $self->{optimizer} = $optimizer;
    $optimizer->attach($self);
    delete @$self{qw(updater closure)};
    return;
}

sub use_optimizer {
    my ($handle, $optimizer, $keep_states) = @_;
    Syncline::FFI::check(Syncline::FFI::kv_set_optimizer($handle, Syncline::KVStore::Arrays::encoded($optimizer->name, 'an optimizer'), $optimizer->json, $keep_states));
    return;
}

sub optimizer { $_[0]{optimizer} }

sub set_learning_rate {
    my ($self, $rate, @more) = @_;
    Syncline::Error::no_more('set_learning_rate', @more);
    Syncline::Error::argument('a learning rate is ' . Syncline::Array::shown($rate) . ', and must be a number') unless defined $rate && looks_like_number($rate);
    Syncline::FFI::check(Syncline::FFI::kv_set_learning_rate($self->{handle}, $rate));
    return;
}

sub set_gradient_compression {
    my ($self, $words, @more) = @_;
    Syncline::Error::no_more('set_gradient_compression', @more);
    Syncline::Error::argument('set_gradient_compression takes a hash, such as { type => "2bit", threshold => 0.5 }') unless ref $words eq 'HASH';
    my @texts = map { Syncline::KVStore::Arrays::encoded($_, 'a word') } map { ($_, $words->{$_} // '') } sort CORE::keys %$words;
    Syncline::FFI::check(Syncline::FFI::kv_compress($self->{handle}, join('', map { pack 'p', $_ } @texts), @texts / 2));
    return;
}

sub save_optimizer_states {
    my ($self, $path, @rest) = @_;
    my %options = Syncline::KVStore::paired('save_optimizer_states', @rest);
    Syncline::KVStore::refuse_options('save_optimizer_states', \%options, 'dump_optimizer');
    Syncline::FFI::check(Syncline::FFI::kv_save($self->{handle}, path($path), Syncline::Array::truth($options{dump_optimizer})));
    return;
}

sub load_optimizer_states {
    my ($self, $path, @more) = @_;
    Syncline::Error::no_more('load_optimizer_states', @more);
    Syncline::FFI::check(Syncline::FFI::kv_load($self->{handle}, path($path)));
    return;
}

sub path {
    my ($path) = @_;
    Syncline::Error::argument('a path is ' . Syncline::Array::shown($path) . ', and must be a text') if !defined $path || (ref $path && !overload::Method($path, '""'));
    return Syncline::KVStore::Arrays::encoded("$path", 'a path');
}

1;

__END__

=head1 NAME

Syncline::KVStore::Rules - what a push does to what is stored

=head1 DESCRIPTION

Not for programs: L<Syncline::KVStore> is one of these.

=cut
