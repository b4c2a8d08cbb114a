package Syncline::KVStore::Arrays;

# Keys and arrays of a store as structures of the C interface, and back. What they point to is kept by the caller for the time of the call.

use strict;
use warnings;

use Scalar::Util qw(blessed refaddr);
use Syncline::Array ();
use Syncline::Error ();
use Syncline::RowSparse ();

our $VERSION = '0.1.0';

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

# Remembers what a key is: its structure, and for arrays of few dimensions what Syncline::Quick has to know of it.
sub remember_key {
    my ($self, $key, $array) = @_;
    my $rows = Syncline::RowSparse::is($array);
    $self->{specs}{$key} = $rows ? [$array->dtype, $array->shape, 1] : [Syncline::Array::dtype_of($array), Syncline::Array::shape_of($array), 0];
    my $kept = ["", encoded($key, 'a key')];
    $kept->[0] = $self->{int_keys} ? pack('Qq', 0, $key) : pack('pq', $kept->[1], 0);
    $self->{keys}{$key} = $kept;
    my @dims = $rows ? () : $array->dims;
    return if $rows || @dims > 6;
    my ($type, $named) = ($array->get_datatype, $self->{int_keys} ? 0 : 1);
    # The structure known_key of Quick.xs; the zero behind the name is Perl's own.
    $self->{quick}{$key} = pack 'qllLLq' . @dims . 'a*', $named ? 0 : $key, $Syncline::Array::DTYPE_OF[$type], $type, scalar @dims, $named, @dims, $kept->[1];
    return;
}

# dtype and shape of a key that was made here.
sub spec {
    my ($self, $call, $key) = @_;
    my $spec = defined $key && !ref $key ? $self->{specs}{$key} : undef;
    return $spec if $spec;
    $self->packed_key($key);    # refuses what is no key
    Syncline::Error::raise('UnknownKey', "$call: key $key doesn't exist. Did you init?");
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

# Makes what was written visible; row-sparse outputs that were left alone stay as they are.
sub finish {
    my ($self, $arrays, $after, $rows_left_alone) = @_;
    for my $place (0 .. $#$arrays) {
        $after->[$place]->() unless $rows_left_alone && Syncline::RowSparse::is($arrays->[$place]);
    }
    return;
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

1;

__END__

=head1 NAME

Syncline::KVStore::Arrays - keys and arrays of a store, as the C interface wants them

=head1 DESCRIPTION

Not for programs: L<Syncline::KVStore> is one of these.

=cut
