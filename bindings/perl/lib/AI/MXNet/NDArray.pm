package AI::MXNet::NDArray;

# Arrays as programs of MXNet write them, over PDL: shapes with the fastest extent last, overloaded arithmetic, contexts as labels.

use strict;
use warnings;
use overload
    '""'  => sub { my ($self) = @_; '<' . ref($self) . ' ' . join('x', @{ $self->shape }) . ' @' . $self->ctx . '>' },
    'bool' => sub { 1 },
    '='   => sub { $_[0] },    # $b = $a; $b += 1 changes both, as with any other object
    '+'   => sub { combined('+', @_) },
    '-'   => sub { combined('-', @_) },
    '*'   => sub { combined('*', @_) },
    '/'   => sub { combined('/', @_) },
    '%'   => sub { combined('%', @_) },
    '**'  => sub { combined('**', @_) },
    '=='  => sub { combined('==', @_) },
    '!='  => sub { combined('!=', @_) },
    '>'   => sub { combined('>', @_) },
    '>='  => sub { combined('>=', @_) },
    '<'   => sub { combined('<', @_) },
    '<='  => sub { combined('<=', @_) },
    '+='  => sub { changed('+', @_) },
    '-='  => sub { changed('-', @_) },
    '*='  => sub { changed('*', @_) },
    '/='  => sub { changed('/', @_) },
    '%='  => sub { changed('%', @_) },
    '**=' => sub { changed('**', @_) },
    '.='  => sub { $_[0]->set($_[1]) },
    'neg' => sub { $_[0] * -1 },
    'abs' => sub { my ($self) = @_; $self->like($self->dense->abs) };

use PDL::Lite ();
use Scalar::Util qw(blessed looks_like_number);
use AI::MXNet::Context ();
use AI::MXNet::NDArray::Sparse ();
use Syncline::Array ();
use Syncline::Error ();

our $VERSION = '0.1.0';

my %COMBINE = (
    '+' => sub { $_[0] + $_[1] }, '-' => sub { $_[0] - $_[1] }, '*' => sub { $_[0] * $_[1] }, '/' => sub { $_[0] / $_[1] },
    '%' => sub { $_[0] % $_[1] }, '**' => sub { $_[0]**$_[1] },
    '==' => sub { $_[0] == $_[1] }, '!=' => sub { $_[0] != $_[1] }, '>' => sub { $_[0] > $_[1] }, '>=' => sub { $_[0] >= $_[1] },
    '<' => sub { $_[0] < $_[1] }, '<=' => sub { $_[0] <= $_[1] },
);

# --- making them -------------------------------------------------------------------------------------------------------------------

# of(PDL, CONTEXT): around this very array.
sub of {
    my ($class, $pdl, $ctx) = @_;
    return bless { pdl => $pdl, ctx => $ctx // AI::MXNet::Context->current_ctx, dtype => Syncline::Array::dtype_of($pdl) }, $class;
}

sub zeros {
    my ($class, $shape, @rest) = @_;
    my (undef, undef, $stype) = settings(@rest);
    return $class->full($shape, 0, @rest) unless $stype eq 'row_sparse';
    my %options = @rest % 2 ? (ctx => @rest) : @rest;
    delete $options{stype};
    return sparse()->zeros($stype, $shape, %options);
}

sub ones  { my ($class, $shape, @rest) = @_; return $class->full($shape, 1, @rest) }
sub empty { my ($class, $shape, @rest) = @_; return $class->full($shape, 0, @rest) }

sub full {
    my ($class, $shape, $value, @rest) = @_;
    my ($ctx, $dtype) = dense_settings(@rest);
    Syncline::Error::argument('full: ' . Syncline::Array::shown($value) . ' is no number') unless defined $value && !ref $value && looks_like_number($value);
    my $pdl = Syncline::Array::fresh($dtype // 'float32', checked_shape($shape));
    $pdl .= $value unless $pdl->isempty || $value == 0;
    return of($class, $pdl, $ctx);
}

sub array {
    my ($class, $source, @rest) = @_;
    my ($ctx, $dtype) = dense_settings(@rest);
    my $pdl;
    if (is($source)) {
        ($pdl, $dtype) = ($source->dense, $dtype // $source->dtype);
    }
    else {
        $pdl = Syncline::Array::whole($source, 'the source of an array');
    }
    return of($class, $pdl->copy->convert(Syncline::Array::type_of($dtype // 'float32')), $ctx);
}

sub sparse { 'AI::MXNet::NDArray::Sparse' }

# The options ctx, dtype and stype; a context may also come first, without its name, as in the original.
sub settings {
    my (@rest) = @_;
    if (@rest % 2 && AI::MXNet::Context::is($rest[0])) {
        my ($ctx, %named) = @rest;
        Syncline::Error::argument('an array: ctx came twice, first without its name') if exists $named{ctx};
        @rest = (ctx => $ctx, %named);
    }
    Syncline::Error::argument('an array: options come in pairs, name => value') if @rest % 2;
    my %options = @rest;
    for my $option (sort keys %options) {
        Syncline::Error::argument("an array has no option $option; it has ctx, dtype, stype") unless $option =~ /\A(?:ctx|dtype|stype)\z/;
    }
    Syncline::Error::argument('ctx is ' . Syncline::Array::shown($options{ctx}) . ', and must be a context') if defined $options{ctx} && !AI::MXNet::Context::is($options{ctx});
    Syncline::Array::type_of($options{dtype}) if defined $options{dtype};
    my $stype = $options{stype} // 'default';
    Syncline::Error::argument('storage ' . Syncline::Array::shown($stype) . ' is none of default, row_sparse') unless !ref $stype && $stype =~ /\A(?:default|row_sparse)\z/;
    return (@options{qw(ctx dtype)}, $stype);
}

# The same, of arrays that are dense whatever they hold.
sub dense_settings {
    my ($ctx, $dtype, $stype) = settings(@_);
    Syncline::Error::argument("such an array is not made as row_sparse\nhint: tostype('row_sparse')") if $stype ne 'default';
    return ($ctx, $dtype);
}

sub checked_shape {
    my ($shape) = @_;
    $shape = [$shape] if defined $shape && !ref $shape;
    Syncline::Error::argument('a shape is ' . Syncline::Array::shown($shape) . ', and must be a list of extents') unless ref $shape eq 'ARRAY';
    my $numbers = 1;
    for my $extent (@$shape) {
        Syncline::Error::argument('an extent is ' . Syncline::Array::shown($extent) . ', and must be a whole number, 0 or more')
            unless defined $extent && !ref $extent && $extent =~ /\A[0-9]{1,12}\z/;
        $numbers *= $extent;
    }
    Syncline::Error::argument("an array of $numbers numbers is more than memory holds") if $numbers > 2**40;
    return $shape;
}

sub is { my ($given) = @_; return blessed $given && $given->isa(__PACKAGE__) }

# --- what they are -----------------------------------------------------------------------------------------------------------------

sub shape   { Syncline::Array::shape_of($_[0]{pdl}) }
sub dtype   { $_[0]{dtype} }
sub stype   { 'default' }
sub ctx     { $_[0]{ctx} }
sub context { $_[0]{ctx} }
sub size    { my ($self) = @_; my $size = 1; $size *= $_ for @{ $self->shape }; return $size }
sub ndim    { scalar @{ $_[0]->shape } }
sub len     { $_[0]->shape->[0] }

# The PDL itself; `aspdl` is a copy of it.
sub dense { $_[0]{pdl} }
sub aspdl { $_[0]->dense->copy }

sub asscalar {
    my ($self) = @_;
    Syncline::Error::argument('asscalar: the array has ' . $self->size . ' numbers, and must have one') unless $self->size == 1;
    return $self->dense->sclr;
}

# What a store takes and fills.
sub stored { $_[0]{pdl} }

sub wait_to_read { return }

# --- other ones ------------------------------------------------------------------------------------------------------------------

sub like { my ($self, $pdl) = @_; return of(__PACKAGE__, $pdl->convert(Syncline::Array::type_of($self->dtype)), $self->ctx) }
sub copy { my ($self) = @_; return $self->like($self->dense->copy) }

sub astype {
    my ($self, $dtype, @more) = @_;
    Syncline::Error::no_more('astype', @more);
    return of(__PACKAGE__, $self->dense->copy->convert(Syncline::Array::type_of($dtype)), $self->ctx);
}

sub reshape {
    my ($self, $shape, @more) = @_;
    Syncline::Error::no_more('reshape', @more);
    my $numbers = 1;
    $numbers *= $_ for @{ $shape = checked_shape($shape) };
    Syncline::Error::raise('ShapeMismatch', "reshape: $numbers numbers were asked for, and the array has " . $self->size) if $numbers != $self->size;
    return $self->like($self->dense->copy->reshape(reverse @$shape));
}

sub copyto {
    my ($self, $other) = @_;
    return of(__PACKAGE__, $self->aspdl, $other) if AI::MXNet::Context::is($other);
    Syncline::Error::argument('copyto: ' . Syncline::Array::shown($other) . ' is neither an array nor a context') unless is($other);
    return $other->set($self);
}

sub as_in_context {
    my ($self, $ctx) = @_;
    return AI::MXNet::Context::is($ctx) && $ctx == $self->ctx ? $self : $self->copyto($ctx);
}

sub tostype {
    my ($self, $stype) = @_;
    return of(__PACKAGE__, $self->aspdl, $self->ctx) if defined $stype && !ref $stype && $stype eq 'default';
    return AI::MXNet::NDArray::RowSparse->from($self) if defined $stype && !ref $stype && $stype eq 'row_sparse';
    Syncline::Error::argument('storage ' . Syncline::Array::shown($stype) . ' is none of default, row_sparse');
}

# set(VALUE): writes numbers into this very array.
sub set {
    my ($self, $value) = @_;
    my $numbers = $self->operand($value);
    $self->{pdl} .= $numbers unless $self->{pdl}->isempty;
    return $self;
}

# All numbers added up; sums along an axis are not here.
sub sum { my ($self, @more) = @_; Syncline::Error::no_more('sum', @more); return of(__PACKAGE__, PDL->new(Syncline::Array::type_of($self->dtype), [$self->dense->sum]), $self->ctx) }

# --- arithmetic --------------------------------------------------------------------------------------------------------------------

# The other side of an operation: a number, or numbers of the same shape.
sub operand {
    my ($self, $other) = @_;
    if (defined $other && !ref $other) {
        return $other if looks_like_number($other);
    }
    elsif (is($other) || blessed $other && $other->isa('PDL')) {
        my $pdl = is($other) ? $other->dense : Syncline::Array::whole($other, 'an operand');
        return $pdl->sclr if $pdl->nelem == 1;
        my ($mine, $given) = map { join 'x', @$_ } $self->shape, Syncline::Array::shape_of($pdl);
        return $pdl if $mine eq $given;
        Syncline::Error::raise('ShapeMismatch', "an array of $mine meets one of $given");
    }
    Syncline::Error::argument('an array meets ' . Syncline::Array::shown($other) . ', which is no number');
}

sub combined {
    my ($operator, $self, $other, $swapped) = @_;
    my ($left, $right) = ($self->dense, $self->operand($other));
    # A single number on this side takes the shape of the other.
    ($left, $self) = ($left->sclr, $other) if is($other) && $left->nelem == 1 && $other->size != 1 && ($right = $other->dense, 1);
    ($left, $right) = ($right, $left) if $swapped;
    return $self->like($COMBINE{$operator}->($left, $right));
}

sub changed {
    my ($operator, $self, $other) = @_;
    my $result = $COMBINE{$operator}->($self->dense, $self->operand($other));
    $self->{pdl} .= $result unless $self->{pdl}->isempty;
    return $self;
}

1;

__END__

=head1 NAME

AI::MXNet::NDArray - arrays in MXNet's manner, over PDL

=head1 SYNOPSIS

    my $a = mx->nd->ones([2, 3], ctx => mx->cpu, dtype => 'float32');
    my $c = mx->nd->zeros([2, 3], mx->gpu(1));
    my $b = $a * 2 + mx->nd->array([[1, 2, 3], [4, 5, 6]]);
    $b += 1;
    print $b->aspdl, "@{ $b->shape }", $b->sum->asscalar;

=head1 DESCRIPTION

Shapes have the fastest extent last: an array of shape C<[2, 3]> is a PDL of dimensions C<(3, 2)>. dtypes are those that PDL has: C<float32> (the default), C<float64>, C<uint8>, C<int16>, C<int32>, C<int64>.

=head1 METHODS

=over

=item zeros($shape), ones($shape), empty($shape), full($shape, $value), array($source), all with ctx => and dtype =>

A context may also stand right after these, without its name: C<ones($shape, mx-E<gt>gpu(0))>.

New arrays; the source of C<array> is a PDL, a list of numbers or of lists, or another array.

=item sparse

L<AI::MXNet::NDArray::Sparse>, for row-sparse arrays.

=item + - * / % ** neg abs == != > >= E<lt> E<lt>=, and += -= *= /= %= **= .= in place

With a number, or an array of the same shape.

=item aspdl, asscalar, shape, dtype, stype, ctx, context, size, ndim, len

C<aspdl> is a copy.

=item copy, copyto($array_or_context), as_in_context($ctx), astype($dtype), reshape($shape), tostype('row_sparse'), set($value), sum, wait_to_read

=back

=cut
